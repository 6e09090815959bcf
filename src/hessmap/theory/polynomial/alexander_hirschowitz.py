"""The theorem of Alexander and Hirschowitz: how many dimensions sums of powers of linear forms fill."""

from __future__ import annotations

from math import comb

from hessmap.theory.conditions import checked_count

# (degree, projective dimension, number of powers) where the count of parameters is one too many, for degree >= 3.
EXCEPTIONS = frozenset({(3, 4, 7), (4, 2, 5), (4, 3, 9), (4, 4, 14)})


def secant_dimension(degree: int, projective_dim: int, num_powers: int) -> int:
    """The dimension of the set of sums of s powers l_1^n + .. + l_s^n of linear forms in r + 1 variables.

    Formula, degree n, projective dimension r, number of powers s (all for generic forms, over the complex numbers):
    n = 1: r + 1. n = 2: C(r+2, 2) - C(r+2-s, 2) for s <= r, C(r+2, 2) beyond (symmetric matrices of rank s).
    n >= 3: min(s (r+1), C(r+n, n)), one less at the four ``EXCEPTIONS``. No power at all fills nothing.

    It is the affine dimension of the s-th secant variety of the Veronese variety nu_n(P^r), hence (Terracini) the rank
    of the derivative of (l_1, .., l_s) -> l_1^n + .. + l_s^n, the span of all l_i^{n-1} m with m a linear form.

    Reference: Alexander & Hirschowitz 1995, Polynomial interpolation in several variables; quoted, not proved here.

    By hand: one square of a form in two variables moves in 2 directions, two squares in all 3 of a x^2 + b x y + c y^2.
    Five fourth powers in three variables have 15 parameters in a space of 15, and miss one direction.

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
