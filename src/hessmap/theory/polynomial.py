"""Ranks of networks with polynomial activations, with one or two hidden layers.

The theorem of Alexander and Hirschowitz gives the dimension that sums of powers of linear forms fill.

Two layers, one output, a polynomial activation and generic weights:

The network is f(x) = sum_h v_h g(l_h), l_h = w_h . x, with ``inputs`` Ni, ``hidden`` Nh and g = sum_{k in S} c_k t^k,
S the ``degrees`` with c_k != 0, n the largest. Its rank is the dimension of the span T of its derivatives g'(l_h) x_i
and g(l_h) (and g'(l_h) with a hidden bias, and 1 with an output bias): the rank of the population Hessian at a teacher
for every input law with a density, and of the outer-product Hessian on enough generic samples.
AH is ``secant_dimension``.

If the activation is not a polynomial, no parameter is redundant except for known symmetries.

The network is f(x) = sum_h v_h g(l_h) (+ c), l_h = w_h . x (+ b_h), with ``inputs`` Ni and ``hidden`` Nh; generic means
v_h != 0 and l_h, l_k not proportional. Its derivatives are g(l_h), g'(l_h) x_i, and g'(l_h), 1 with biases.

Two hidden layers and one output, n0 - n1 - n2 - 1:

The activation is a monomial c t^n, or a polynomial of degree n with all its terms c_1 .. c_n and no constant one. Five
upper bounds are theorems; that the smallest is reached is a conjecture. The dimensions of such sets of functions
("neurovarieties": Kileel, Trager & Bruna 2019; Kubjas, Li & Wiesmann 2024) are open in general; when monomials reach
the expected one is known (Massarenti & Mella 2025).
R(n0, n1) is the rank of one hidden layer (``two_layers``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import comb
from typing import NamedTuple

from hessmap.errors import InvalidInput, UnsupportedNetwork, sentence
from hessmap.networks import ACTIVATIONS, Activation, Polynomial, is_homogeneous
from hessmap.records import CountKind
from hessmap.theory.data_ranks import checked_count, checked_widths

__all__ = [
    "Rank",
    "deep_polynomial_rank",
    "function_space_dim",
    "independent_rank",
    "rank_with_hidden_bias",
    "rank_with_output_bias",
    "rank_without_bias",
    "secant_dimension",
    "segre_veronese_dimension",
    "upper_bounds",
]

# (degree, projective dimension, number of powers) where the count of parameters is one too many, for degree >= 3.
EXCEPTIONS = frozenset({(3, 4, 7), (4, 2, 5), (4, 3, 9), (4, 4, 14)})


def secant_dimension(degree: int, projective_dim: int, num_powers: int) -> int:
    """The dimension of the set of sums of s powers l_1^n + .. + l_s^n of linear forms in r + 1 variables.

    Args:
        degree: Degree n of the powers.
        projective_dim: Number of variables minus one, r.
        num_powers: Number s of powers that are added.

    Returns:
        The dimension.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Formula, degree n, projective dimension r, number of powers s (all for generic forms, over the complex numbers):
        n = 1: r + 1. n = 2: C(r+2, 2) - C(r+2-s, 2) for s <= r, C(r+2, 2) beyond (symmetric matrices of rank s). n >=
        3: min(s (r+1), C(r+n, n)), one less at the four ``EXCEPTIONS``. No power at all fills nothing.

        It is the affine dimension of the s-th secant variety of the Veronese variety nu_n(P^r), hence (Terracini) the
        rank of the derivative of (l_1, .., l_s) -> l_1^n + .. + l_s^n, the span of all l_i^{n-1} m with m a linear
        form.

        Reference: Alexander & Hirschowitz 1995, Polynomial interpolation in several variables; quoted, not proved here.

    Example:
        One square of a form in two variables moves in 2 directions, two squares in all 3 of a x^2 + b x y + c y^2. Five
        fourth powers in three variables have 15 parameters in a space of 15, and miss one direction.

        >>> secant_dimension(2, 1, 1), secant_dimension(2, 1, 2), secant_dimension(4, 2, 5)
        (2, 3, 14)
    """
    n = checked_count("degree", degree, at_least=1)
    r = checked_count("projective_dim", projective_dim)
    s = checked_count("num_powers", num_powers)
    if s == 0:
        return 0
    whole = comb(r + n, n)
    if n == 1:
        return whole
    if n == 2:
        return whole - (comb(r + 2 - s, 2) if s <= r else 0)
    return min(s * (r + 1), whole) - ((n, r, s) in EXCEPTIONS)


THEOREM = "Alexander & Hirschowitz 1995 with Terracini's lemma"
# Observed where the conjecture below is one too many: degrees -> (inputs, hidden).
ONE_LESS: dict[tuple[int, ...], frozenset[tuple[int, int]]] = {(2, 4): frozenset({(3, 5), (4, 9), (5, 14)})}
# Networks of the study teacher/effective-parameters that are no theorem, all of them right.
_NUM_CASES, _NUM_CASES_WITH_BIAS = 43, 166
_CONJECTURED_UP_TO = 5  # the degree; x^4 + x^5 + x^6 with (2, 6) is an exception, and a constant term makes more


class Rank(NamedTuple):
    """A rank, its kind, the reason and, for a conjecture, on how many networks it held.

    Attributes:
        value: The rank or bound.
        kind: Kind of result.
        reason: Theorem or conjecture that gives it.
        num_cases: Networks on which a conjecture was tried; None otherwise.
    """

    value: int
    kind: CountKind
    reason: str
    num_cases: int | None = None


def rank_without_bias(inputs: int, hidden: int, degrees: Sequence[int]) -> Rank:
    """The rank without any bias: theorems for all but a window of widths in activations that lack some degrees.

    Args:
        inputs: Number of inputs.
        hidden: Number of hidden units.
        degrees: Degrees of the monomials in the activation.

    Returns:
        The rank with its kind and reason.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Full activations, S = {1, .., n}: min(AH(n, Ni, Nh), C(Ni+n, n) - 1), and AH(n, Ni, Nh) with a constant term.
        Proof: scaling the degrees turns g(l_h) into (x0 + l_h)^n, which is homogeneous in Ni + 1 variables; without a
        constant term x0^n is projected away, a point ON the Veronese variety: it adds one dimension to T unless T is
        everything, and is then taken off. The four exceptions of AH are invisible without constant term: there AH =
        C(Ni+n, n) - 1. For n = 2 this is equation 14 of the teacher-student paper.

        Without a linear term, S = {2, .., n}: AH(n, Ni, Nh+1) - (Ni+1). Proof: now the tangent space at x0^n is taken
        off.

        Monomials, S = {n}: AH(n, Ni-1, Nh), one scaling symmetry for each neuron.

        Any other S: let E be the forms of the lower degrees, dim E = sum_{k in S, k < n} C(Ni+k-1, k). Euler's identity
        puts e(l_h) = n g(l_h) - l_h g'(l_h) into T, which lies in E; and T modulo E has dimension AH(n, Ni-1, Nh). So
        the rank is AH(n, Ni-1, Nh) + dim(T meet E), between AH + min(Nh, dim E) and min(Nh (Ni+1), AH + dim E): equal,
        hence a theorem, if Nh >= dim E or AH = Nh Ni. In between the upper bound is conjectured to be reached for
        degrees up to 5 without constant term, but at ``ONE_LESS``; elsewhere it is given as an upper bound, which is
        missed now and then.

    Example:
        X + x^2 with two inputs and one neuron, v (w.x) + v (w.x)^2: three parameters, no symmetry. Two neurons have
        six, in a space of 2 + 3.

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

    Args:
        inputs: Number of inputs.
        hidden: Number of hidden units.
        degrees: Degrees of the monomials in the activation.

    Returns:
        The rank with its kind and reason.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        >>> rank_with_output_bias(2, 2, [1, 2]).value, rank_with_output_bias(2, 2, [0, 1, 2]).value
        (6, 6)
    """
    ni, nh, degrees = _checked_sizes(inputs, hidden, degrees)
    base = rank_without_bias(ni, nh, [k for k in degrees if k])
    return base._replace(value=base.value + 1)


def rank_with_hidden_bias(inputs: int, hidden: int, coefficients: Sequence[float], output_bias: bool = False) -> Rank:
    """A bias b_h in every neuron, l_h = w_h . x + b_h; what counts is g up to a shift of its argument.

    Args:
        inputs: Number of inputs.
        hidden: Number of hidden units.
        coefficients: Coefficients of the activation, ascending.
        output_bias: Whether the output has a bias. Defaults to False.

    Returns:
        The rank with its kind and reason.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Let g(t - a) = c t^n + (degrees <= k) with the shift a that removes t^{n-1}, k the largest degree left.

        Shifted monomial c (t + a)^n + q: AH(n, Ni, Nh), and min(AH + 1, C(Ni+n, n)) if q != 0 or there is an output
        bias. Proof: (l_h)^n is homogeneous in Ni + 1 variables with x0 = 1; q adds the constant x0^n, a point on the
        Veronese variety. Every linear and quadratic g is one, so that a bias adds at most one to the ranks of degrees 1
        and 2.

        k = 1, so every other cubic: min(Nh (Ni+2) + [output bias], AH(n, Ni, Nh+1)). Proof: by Euler's identity T holds
        an affine function of every l_h, and modulo affine functions, the tangent space at x0^n, it is spanned by
        l_h^{n-1} m; if Nh > Ni all affine functions are in T, otherwise nothing is lost.

        k >= 2: min(Nh (Ni+2) + [output bias], C(Ni+n, n), AH(n, Ni, Nh) + C(Ni+k, k)), a theorem as an upper bound.

    Example:
        The paper expects "the same results incremented by one": true for n <= 2 only; x + x^2 + x^3 with two inputs and
        one neuron goes from 3 to 4 and with two neurons from 6 to 8.

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

    Args:
        inputs: Number of inputs.
        coefficients: Coefficients of the activation, ascending.
        hidden_bias: Whether hidden units have a bias.
        output_bias: Whether the output has a bias.

    Returns:
        The dimension.

    Example:
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


def independent_rank(
    inputs: int, hidden: int, activation: str, hidden_bias: bool = False, output_bias: bool = False
) -> Rank:
    """Every parameter counts for erf, tanh, gelu and elu; one less in each neuron for relu and leaky relu.

    Args:
        inputs: Number of inputs.
        hidden: Number of hidden units.
        activation: Name of the activation, or a ``Polynomial``.
        hidden_bias: Whether hidden units have a bias. Defaults to False.
        output_bias: Whether the output has a bias. Defaults to False.

    Returns:
        The rank with its kind and reason.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Formula: Nh (Ni + 1) [+ Nh with a hidden bias] [+ 1 with an output bias]; minus Nh for relu and leaky relu.

        Theorem for generic weights. Proof: on a line x = x_0 + t u the l_h are a_h t + d_h, with different |a_h| for
        almost every direction u. Suppose sum_h (alpha_h g(l_h) + (beta_h . x + gamma_h) g'(l_h)) + c = 0 on it. erf:
        differentiate by t. The Gaussians exp(-l_h^2 / 2) of different |a_h| are independent over the polynomials, so
        alpha_h a_h + a_h beta_h . u - (beta_h . x + gamma_h) a_h l_h = 0 for each h: from t^2 beta_h . u = 0, then
        gamma_h + beta_h . x_0 = 0, then alpha_h = 0; for all u: beta_h = 0. tanh: the pole nearest to the real axis
        belongs to the largest |a_h| alone; its double pole gives the factor of g'(l_h), its simple one alpha_h; then
        the next one. gelu: t (1 + erf(t / sqrt 2)) / 2, as erf with one degree more. relu, leaky relu: g' jumps across
        the hyperplane l_h = 0, and only there if no other neuron shares it, so the factor of g'(l_h) vanishes on it and
        is a multiple of l_h: that is g(l_h) itself again (the scaling symmetry), whose slope jumps too. elu: the same
        with g'' and g'''. Without hidden bias and with one input all hyperplanes are x = 0: for relu the rank then
        depends on the signs.

    Example:
        The paper saw full rank for erf, numerically; in float64 it cannot be seen when Nh is much larger than Ni.

        >>> independent_rank(3, 4, "erf").value, independent_rank(3, 4, "relu").value
        (16, 12)
    """
    ni, nh = checked_count("inputs", inputs, at_least=1), checked_count("hidden", hidden, at_least=1)
    every = nh * (ni + 1 + hidden_bias) + output_bias
    if activation not in ACTIVATIONS or not ACTIVATIONS[activation].has_independent_neurons:
        known = ", ".join(name for name, kind in ACTIVATIONS.items() if kind.has_independent_neurons)
        must, remedy = f"this rank is proved for {known}", "Use numerical_rank on a Problem"
        raise UnsupportedNetwork(sentence(must, f"the activation is {activation!r}", remedy))
    if is_homogeneous(activation):
        if ni == 1 and not hidden_bias:
            must = f"the rank of a {activation} network without hidden bias is known for two inputs or more"
            remedy = "Use numerical_rank on a Problem: with one input it depends on the signs of the weights"
            raise InvalidInput(sentence(must, "inputs is 1", remedy))
        return Rank(every - nh, "exact", "independence of neurons with different kinks; one scaling symmetry each")
    return Rank(every, "exact", "independence of neurons (for tanh: Fukumizu 1996)")


# Observed where the smallest bound is one too many, all terms: (degree, n0, n1, n2).
ONE_LESS_OF_THREE_LAYERS = frozenset({(2, 3, 5, 4)})
# Networks of the study teacher/deep-polynomial, all of them right.
_NUM_CASES_OF_THREE_LAYERS = 1_458
_REMEDY = "Use generic_rank(net, 'outer_product'), which is exact for every polynomial activation"


def deep_polynomial_rank(widths: Iterable[int], activation: Activation, has_bias: bool = False) -> tuple[Rank, int]:
    """The rank, conjectured to be the smallest of ``upper_bounds``, and the dimension of the function space.

    Args:
        widths: Widths d, M_1, .., K, input first and output last.
        activation: Name of the activation, or a ``Polynomial``.
        has_bias: Whether every layer has a bias. Defaults to False.

    Returns:
        The rank, and the dimension of the function space.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        1-1-1-1 with x^2: every function is c x^4.

        >>> rank, whole = deep_polynomial_rank((1, 1, 1, 1), Polynomial((0, 0, 1)))
        >>> rank.value, whole
        (1, 1)
        >>> deep_polynomial_rank((3, 3, 3, 1), Polynomial((0, 1, 1)))[0].value
        18
    """
    widths = checked_widths(widths)
    must = "the rank of a deep network is known for linear ones and for n0-n1-n2-1 with x^n or all terms c_1 .. c_n"
    if not isinstance(activation, Polynomial):
        raise UnsupportedNetwork(sentence(must, f"the activation is '{activation}'", "Use numerical_rank on a Problem"))
    terms = [k for k, coefficient in enumerate(activation.coefficients) if coefficient]
    n = activation.degree
    is_monomial = terms == [n]
    if not (is_monomial or terms == list(range(1, n + 1))):
        raise UnsupportedNetwork(sentence(must, f"the activation is {activation}", _REMEDY))
    if len(widths) != 4 or widths[-1] != 1 or has_bias:
        got = f"the network is {'-'.join(map(str, widths))}{' with bias' if has_bias else ''}"
        raise UnsupportedNetwork(sentence(must, got, _REMEDY))
    n0, n1, n2, _ = widths
    bounds = upper_bounds(n0, n1, n2, n, is_monomial)
    value = min(bounds.values()) - (not is_monomial and (n, n0, n1, n2) in ONE_LESS_OF_THREE_LAYERS)
    reason = f"smallest of five upper bounds (theorems), here '{min(bounds, key=lambda name: bounds[name])}'"
    return Rank(value, "conjecture", reason, _NUM_CASES_OF_THREE_LAYERS), bounds["all polynomials"]


def upper_bounds(n0: int, n1: int, n2: int, degree: int, is_monomial: bool) -> dict[str, int]:
    """Upper bounds of the rank of n0-n1-n2-1, all theorems.

    Args:
        n0: Number of inputs.
        n1: Units of the first hidden layer.
        n2: Units of the second hidden layer.
        degree: Degree of the polynomial.
        is_monomial: Whether the activation is a single power.

    Returns:
        The bounds by name.

    Notes:
        "all polynomials": C(n0+n^2-1, n^2) forms; with all terms C(n0+n^2, n^2) - 1 polynomials.
        "second layers": f = F(g(w_1.x), .., g(w_n1.x)) with F a function of n1 variables of one hidden layer, R(n1, n2)
            dimensions, and n1 n0 numbers w, for monomials n1 (n0-1) as a scale can move into F. On a rational plane
            curve (n0 = 2, n1 = 3 for monomials, n0 = 1, n1 = 2 otherwise) F counts modulo the curve's equation, of
            degree n.
        "first layer full": the first layer spans at most M = C(n0+n-1, n) functions (C(n0+n, n) - 1): R(M, n2).
        "pencils": the n2 functions of the second layer are a point of the secant variety of a Segre-Veronese variety
            P^{n2-1} x P^{n0-1} in degree (1, n); squares lose C(n2, 2), as sum_j v_j q_j^2 has the symmetries of O(n2).
            For monomials with 2 <= n2 <= min(n1, M). This is where classical defects enter
            (``segre_veronese_dimension``).
        "narrow": n2 = 1: v g(u) with u of one hidden layer, R(n0, n1), one more with all terms.

    Example:
        >>> min(upper_bounds(4, 5, 3, 2, True).values())
        26
    """
    n = degree
    terms = [n] if is_monomial else list(range(1, n + 1))
    dims = {k: comb(n0 + k - 1, k) for k in range(1, n * n + 1)}
    first = dims[n] if is_monomial else sum(dims[k] for k in terms)
    outer = rank_without_bias(n1, n2, terms).value
    if (n0, n1) == ((2, 3) if is_monomial else (1, 2)):
        outer = min(outer, comb(n + 2, 2) - (1 if is_monomial else 2))
    bounds = {
        "all polynomials": dims[n * n] if is_monomial else sum(dims.values()),
        "second layers": outer + n1 * (n0 - is_monomial),
        "first layer full": rank_without_bias(first, n2, terms).value,
    }
    if is_monomial and 2 <= n2 <= min(n1, first):
        symmetries = comb(n2, 2) if n == 2 else 0
        bounds["pencils"] = segre_veronese_dimension(n2 - 1, n0 - 1, n, n1) - symmetries
    if n2 == 1:
        bounds["narrow"] = rank_without_bias(n0, n1, terms).value + (not is_monomial)
    return bounds


def segre_veronese_dimension(first: int, second: int, degree: int, num_points: int) -> int:
    """The affine dimension of the s-th secant variety of P^m x P^r in degree (1, n): m + 1 forms with s shared powers.

    Args:
        first: Projective dimension m: m + 1 forms.
        second: Projective dimension r: forms in r + 1 variables.
        degree: Degree n of the forms.
        num_points: Number s of shared powers.

    Returns:
        The dimension.

    Notes:
        Formula: min(s (m+r+1), (m+1) C(r+n, n)), less one at (m, r, n, s) = (2, 2k+1, 2, 3k+2) for k >= 1, (1, 2, 3, 5)
        and (4, 3, 2, 6). Very unbalanced cases (m large) are not covered: they are not needed here.

        Reference: Abo & Brambilla 2013, On the dimensions of secant varieties of Segre-Veronese varieties; for balanced
        cases the list is conjectured to be complete.

    Example:
        Two plane cubics as sums of the same five cubes have 20 parameters in a space of 20, and miss one direction.

        >>> segre_veronese_dimension(1, 2, 3, 5), segre_veronese_dimension(2, 3, 2, 5)
        (19, 29)
    """
    m, r, n, s = first, second, degree, num_points
    expected = min(s * (m + r + 1), (m + 1) * comb(r + n, n))
    k, is_odd = divmod(r, 2)
    is_defective = (m, n) == (2, 2) and is_odd == 1 and k >= 1 and s == 3 * k + 2
    return expected - (is_defective or (m, r, n, s) in {(1, 2, 3, 5), (4, 3, 2, 6)})
