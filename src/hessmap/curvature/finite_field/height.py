"""How large and how fractional exact numbers can be, and what that says about a random prime."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hessmap.curvature.finite_field.prime_field import LOWEST_PRIME_BITS, NUM_PRIMES_AT_LEAST


@dataclass(frozen=True)
class Height:
    """A bound on numbers, or on polynomials in elements drawn at random from the field.

    Times 2^denominator_bits D they have integer coefficients, where D, a power of one whole number that all numbers
    of a network share, is at most 2^division_bits; the absolute values of the coefficients sum to at most
    2^magnitude_bits; the degree in the drawn elements is at most ``degree`` (0 for plain numbers). All bounds
    add up in a product, and in a sum the largest counts.

    >>> dyadic = Height(denominator_bits=3, magnitude_bits=1)
    >>> dyadic * dyadic
    Height(denominator_bits=6, magnitude_bits=2, degree=0, division_bits=0)
    >>> dyadic + Height(0, 5, degree=1)
    Height(denominator_bits=3, magnitude_bits=6, degree=1, division_bits=0)
    """

    denominator_bits: int = 0
    magnitude_bits: int = 0
    degree: int = 0
    division_bits: int = 0

    def __mul__(self, other: Height) -> Height:
        return Height(
            self.denominator_bits + other.denominator_bits,
            self.magnitude_bits + other.magnitude_bits,
            self.degree + other.degree,
            self.division_bits + other.division_bits,
        )

    def __add__(self, other: Height) -> Height:
        return Height.largest((self, other)).summed(2)

    def summed(self, count: int) -> Height:
        """The height of a sum of ``count`` terms of this height."""
        growth = (max(count, 1) - 1).bit_length()
        return replace(self, magnitude_bits=self.magnitude_bits + growth)

    @staticmethod
    def largest(heights: Iterable[Height]) -> Height:
        """A height that bounds all of the given ones (zero, if there are none)."""
        bounds = [(item.denominator_bits, item.magnitude_bits, item.degree, item.division_bits) for item in heights]
        return Height(*map(max, zip(*bounds, strict=True))) if bounds else Height()


def failure_bound(height: Height, size: int) -> float:
    """The probability that a matrix of this height and rank at most ``size`` loses rank in the random field.

    Rank is lost only if one fixed non-zero minor vanishes. Its coefficients, cleared of denominators, are integers
    of at most size! 2^(size * bits) (Hadamard's inequality in the form that holds for polynomials too), so at most
    log2 of that / 61 primes of [2^61, 2^62] divide one of them. For any other prime the minor is a non-zero
    polynomial over GF(P), which vanishes at a random point with probability at most its degree / P
    (Schwartz-Zippel; Schwartz 1980, Zippel 1979).

    >>> failure_bound(Height(denominator_bits=60, magnitude_bits=10), size=1000) < 1e-12
    True
    """
    if size == 0:
        return 0.0
    each = max(0, height.denominator_bits + height.division_bits + height.magnitude_bits)
    bits = size * each + math.lgamma(size + 1) / math.log(2)
    return bits / LOWEST_PRIME_BITS / NUM_PRIMES_AT_LEAST + size * height.degree / 2.0**LOWEST_PRIME_BITS
