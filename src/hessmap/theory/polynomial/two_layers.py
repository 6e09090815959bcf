"""The rank of a two-layer network with one output and a polynomial activation, for generic weights.

The network is f(x) = sum_h v_h g(l_h), l_h = w_h . x, with ``inputs`` Ni, ``hidden`` Nh and g = sum_{k in S} c_k t^k,
S the ``degrees`` with c_k != 0, n the largest. Its rank is the dimension of the span T of its derivatives g'(l_h) x_i
and g(l_h) (and g'(l_h) with a hidden bias, and 1 with an output bias): the rank of the population Hessian at a teacher
for every input law with a density, and of the outer-product Hessian on enough generic samples.
AH is ``secant_dimension``.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb
from typing import NamedTuple

from hessmap.records.effective_parameters import CountTruth
from hessmap.theory.conditions import checked_count
from hessmap.theory.polynomial.alexander_hirschowitz import secant_dimension

THEOREM = "Alexander & Hirschowitz 1995 with Terracini's lemma"
# Observed where the conjecture below is one too many: degrees -> (inputs, hidden).
ONE_LESS: dict[tuple[int, ...], frozenset[tuple[int, int]]] = {(2, 4): frozenset({(3, 5), (4, 9), (5, 14)})}
# Networks of the study teacher/effective-parameters that are no theorem, all of them right.
_NUM_CASES, _NUM_CASES_WITH_BIAS = 43, 166
_CONJECTURED_UP_TO = 5  # the degree; x^4 + x^5 + x^6 with (2, 6) is an exception, and a constant term makes more


class Rank(NamedTuple):
    """A rank, the kind of truth, the reason and, for a conjecture, on how many networks it held."""

    value: int
    kind: CountTruth
    reason: str
    num_cases: int | None = None


def rank_without_bias(inputs: int, hidden: int, degrees: Sequence[int]) -> Rank:
    """The rank without any bias: theorems for all but a window of widths in activations that lack some degrees.

    Full activations, S = {1, .., n}: min(AH(n, Ni, Nh), C(Ni+n, n) - 1), and AH(n, Ni, Nh) with a constant term.
    Proof: scaling the degrees turns g(l_h) into (x0 + l_h)^n, which is homogeneous in Ni + 1 variables; without a
    constant term x0^n is projected away, a point ON the Veronese variety: it adds one dimension to T unless T is
    everything, and is then taken off. The four exceptions of AH are invisible without constant term: there
    AH = C(Ni+n, n) - 1. For n = 2 this is equation 14 of the teacher-student paper.

    Without a linear term, S = {2, .., n}: AH(n, Ni, Nh+1) - (Ni+1). Proof: now the tangent space at x0^n is taken off.

    Monomials, S = {n}: AH(n, Ni-1, Nh), one scaling symmetry for each neuron.

    Any other S: let E be the forms of the lower degrees, dim E = sum_{k in S, k < n} C(Ni+k-1, k). Euler's identity
    puts e(l_h) = n g(l_h) - l_h g'(l_h) into T, which lies in E; and T modulo E has dimension AH(n, Ni-1, Nh). So the
    rank is AH(n, Ni-1, Nh) + dim(T meet E), between AH + min(Nh, dim E) and min(Nh (Ni+1), AH + dim E): equal, hence a
    theorem, if Nh >= dim E or AH = Nh Ni. In between the upper bound is conjectured to be reached for degrees up to 5
    without constant term, but at ``ONE_LESS``; elsewhere it is given as an upper bound, which is missed now and then.

    By hand for x + x^2 with two inputs and one neuron, v (w.x) + v (w.x)^2: three parameters, no symmetry. Two neurons
    have six, in a space of 2 + 3.

    >>> rank_without_bias(2, 1, [1, 2]).value, rank_without_bias(2, 2, [1, 2]).value
    (3, 5)
    >>> rank_without_bias(4, 6, [2, 3])
    Rank(value=29, kind='exact', reason="Alexander & Hirschowitz 1995 with Terracini's lemma", num_cases=None)
    """
    ni, nh, degrees = _checked_sizes(inputs, hidden, degrees)
    n, lower = degrees[-1], degrees[:-1]
    if set(degrees) >= set(range(1, n + 1)):
        return Rank(_full_dimension(ni, nh, n, 0 in lower), "exact", THEOREM)
    if lower == tuple(range(2, n)) and lower:
        return Rank(secant_dimension(n, ni, nh + 1) - (ni + 1), "exact", THEOREM)
    top = secant_dimension(n, ni - 1, nh)
    rest = sum(comb(ni + k - 1, k) for k in lower)
    if nh >= rest or top == nh * ni:
        return Rank(top + min(nh, rest), "exact", THEOREM + ", Euler's identity")
    value = min(nh * (ni + 1), top + rest) - ((ni, nh) in ONE_LESS.get(degrees, ()))
    reason = "min(Nh(Ni+1), AH(n,Ni-1,Nh) + forms of lower degree): an upper bound by theorem"
    if n > _CONJECTURED_UP_TO or 0 in lower:
        return Rank(value, "upper_bound", reason)
    return Rank(value, "conjecture", reason, _NUM_CASES)


def rank_with_output_bias(inputs: int, hidden: int, degrees: Sequence[int]) -> Rank:
    """An output bias adds the constants, and takes them from the activation: the rank without c_0, plus one.

    >>> rank_with_output_bias(2, 2, [1, 2]).value, rank_with_output_bias(2, 2, [0, 1, 2]).value
    (6, 6)
    """
    ni, nh, degrees = _checked_sizes(inputs, hidden, degrees)
    base = rank_without_bias(ni, nh, [k for k in degrees if k])
    return base._replace(value=base.value + 1)


def rank_with_hidden_bias(inputs: int, hidden: int, coefficients: Sequence[float], output_bias: bool = False) -> Rank:
    """A bias b_h in every neuron, l_h = w_h . x + b_h; what counts is g up to a shift of its argument.

    Let g(t - a) = c t^n + (degrees <= k) with the shift a that removes t^{n-1}, k the largest degree left.

    Shifted monomial c (t + a)^n + q: AH(n, Ni, Nh), and min(AH + 1, C(Ni+n, n)) if q != 0 or there is an output bias.
    Proof: (l_h)^n is homogeneous in Ni + 1 variables with x0 = 1; q adds the constant x0^n, a point on the Veronese
    variety. Every linear and quadratic g is one, so that a bias adds at most one to the ranks of degrees 1 and 2.

    k = 1, so every other cubic: min(Nh (Ni+2) + [output bias], AH(n, Ni, Nh+1)). Proof: by Euler's identity T holds an
    affine function of every l_h, and modulo affine functions, the tangent space at x0^n, it is spanned by l_h^{n-1} m;
    if Nh > Ni all affine functions are in T, otherwise nothing is lost.

    k >= 2: min(Nh (Ni+2) + [output bias], C(Ni+n, n), AH(n, Ni, Nh) + C(Ni+k, k)), a theorem as an upper bound.

    The paper expects "the same results incremented by one": true for n <= 2 only; x + x^2 + x^3 with two inputs and one
    neuron goes from 3 to 4 and with two neurons from 6 to 8.

    >>> [rank_with_hidden_bias(2, hidden, (0, 1, 1, 1)).value for hidden in (1, 2, 3)]
    [4, 8, 10]
    >>> rank_with_hidden_bias(4, 6, (0, 1, 1, 1)).value, rank_with_hidden_bias(2, 1, (0, 0, 1)).value
    (34, 3)
    """
    shifted = _depressed_coefficients(coefficients)
    degrees = tuple(k for k, coefficient in enumerate(shifted) if coefficient)
    ni, nh, degrees = _checked_sizes(inputs, hidden, degrees)
    n, lower = degrees[-1], degrees[:-1]
    whole = comb(ni + n, n)
    k = max(lower, default=0)
    powers = secant_dimension(n, ni, nh)
    if k == 0:
        return Rank(min(powers + bool(lower or output_bias), whole), "exact", THEOREM)
    free = nh * (ni + 2) + output_bias
    if k == 1:
        value = min(free, secant_dimension(n, ni, nh + 1))
        return Rank(value, "exact", THEOREM + ", Euler's identity")
    value = min(free, whole, powers + comb(ni + k, k))
    reason = "min(parameters, all polynomials, AH + lower degrees): an upper bound by theorem"
    return Rank(value, "conjecture", reason, _NUM_CASES_WITH_BIAS)


def function_space_dim(inputs: int, coefficients: Sequence[float], hidden_bias: bool, output_bias: bool) -> int:
    """The dimension of the span of all functions of the network: its polynomials of the degrees that occur.

    >>> function_space_dim(2, (0, 1, 1), False, False), function_space_dim(2, (0, 1, 1), True, False)
    (5, 6)
    """
    n = len(coefficients) - 1
    if hidden_bias:
        return comb(inputs + n, n)
    degrees = {k for k, coefficient in enumerate(coefficients) if coefficient} | ({0} if output_bias else set())
    return sum(comb(inputs + k - 1, k) for k in degrees)


def _full_dimension(ni: int, nh: int, n: int, has_constant: bool) -> int:
    dimension = secant_dimension(n, ni, nh)
    return dimension if has_constant else min(dimension, comb(ni + n, n) - 1)


def _checked_sizes(inputs: int, hidden: int, degrees: Sequence[int]) -> tuple[int, int, tuple[int, ...]]:
    ni, nh = checked_count("inputs", inputs, at_least=1), checked_count("hidden", hidden, at_least=1)
    checked = tuple(sorted({checked_count("a degree", k) for k in degrees}))
    checked_count("the degree of the activation", checked[-1] if checked else 0, at_least=1)
    return ni, nh, checked


def _depressed_coefficients(coefficients: Sequence[float]) -> list[Fraction]:
    """The ascending coefficients of g(t - a), exactly, with the shift a that removes the second highest power."""
    exact = [Fraction(coefficient) for coefficient in coefficients]
    while exact and not exact[-1]:
        exact.pop()
    checked_count("the degree of the activation", len(exact) - 1, at_least=1)
    n = len(exact) - 1
    shift = -exact[-2] / (n * exact[-1])
    return [
        sum((exact[j] * comb(j, k) * shift ** (j - k) for j in range(k, n + 1)), start=Fraction(0))
        for k in range(n + 1)
    ]
