"""The rank of a network with two hidden layers of polynomial activations and one output: n0 - n1 - n2 - 1.

The activation is a monomial c t^n, or a polynomial of degree n with all its terms c_1 .. c_n and no constant one. Five
upper bounds are theorems; that the smallest is reached is a conjecture. The dimensions of such sets of functions
("neurovarieties": Kileel, Trager & Bruna 2019; Kubjas, Li & Wiesmann 2024) are open in general; when monomials reach
the expected one is known (Massarenti & Mella 2025).
R(n0, n1) is the rank of one hidden layer (``two_layers``).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import comb

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.networks.activations import Activation, Polynomial
from hessmap.theory.conditions import checked_widths
from hessmap.theory.polynomial.two_layers import Rank, rank_without_bias

# Observed where the smallest bound is one too many, all terms: (degree, n0, n1, n2).
ONE_LESS = frozenset({(2, 3, 5, 4)})
# Networks of the study teacher/deep-polynomial, all of them right.
_NUM_CASES = 1_458
_REMEDY = "Use generic_rank(net, 'outer_product'), which is exact for every polynomial activation"


def deep_polynomial_rank(widths: Iterable[int], activation: Activation, has_bias: bool = False) -> tuple[Rank, int]:
    """The rank, conjectured to be the smallest of ``upper_bounds``, and the dimension of the function space.

    By hand for 1-1-1-1 with x^2: every function is c x^4.

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
    value = min(bounds.values()) - (not is_monomial and (n, n0, n1, n2) in ONE_LESS)
    reason = f"smallest of five upper bounds (theorems), here '{min(bounds, key=lambda name: bounds[name])}'"
    return Rank(value, "conjecture", reason, _NUM_CASES), bounds["all polynomials"]


def upper_bounds(n0: int, n1: int, n2: int, degree: int, is_monomial: bool) -> dict[str, int]:
    """Upper bounds of the rank of n0-n1-n2-1, all theorems.

    "all polynomials": C(n0+n^2-1, n^2) forms; with all terms C(n0+n^2, n^2) - 1 polynomials.
    "second layers": f = F(g(w_1.x), .., g(w_n1.x)) with F a function of n1 variables of one hidden layer, R(n1, n2)
        dimensions, and n1 n0 numbers w, for monomials n1 (n0-1) as a scale can move into F. On a rational plane curve
        (n0 = 2, n1 = 3 for monomials, n0 = 1, n1 = 2 otherwise) F counts modulo the curve's equation, of degree n.
    "first layer full": the first layer spans at most M = C(n0+n-1, n) functions (C(n0+n, n) - 1): R(M, n2).
    "pencils": the n2 functions of the second layer are a point of the secant variety of a Segre-Veronese variety
        P^{n2-1} x P^{n0-1} in degree (1, n); squares lose C(n2, 2), as sum_j v_j q_j^2 has the symmetries of O(n2).
        For monomials with 2 <= n2 <= min(n1, M). This is where classical defects enter (``segre_veronese_dimension``).
    "narrow": n2 = 1: v g(u) with u of one hidden layer, R(n0, n1), one more with all terms.

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

    Formula: min(s (m+r+1), (m+1) C(r+n, n)), less one at (m, r, n, s) = (2, 2k+1, 2, 3k+2) for
    k >= 1, (1, 2, 3, 5) and (4, 3, 2, 6). Very unbalanced cases (m large) are not covered: they are not needed here.

    Reference: Abo & Brambilla 2013, On the dimensions of secant varieties of Segre-Veronese varieties; for balanced
    cases the list is conjectured to be complete.

    Two plane cubics as sums of the same five cubes have 20 parameters in a space of 20, and miss one direction.

    >>> segre_veronese_dimension(1, 2, 3, 5), segre_veronese_dimension(2, 3, 2, 5)
    (19, 29)
    """
    m, r, n, s = first, second, degree, num_points
    expected = min(s * (m + r + 1), (m + 1) * comb(r + n, n))
    k, is_odd = divmod(r, 2)
    is_defective = (m, n) == (2, 2) and is_odd == 1 and k >= 1 and s == 3 * k + 2
    return expected - (is_defective or (m, r, n, s) in {(1, 2, 3, 5), (4, 3, 2, 6)})
