"""Arithmetic of arrays modulo a 62-bit prime, with numpy's int64 and float64 alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import flint
import numpy as np
from numpy.typing import NDArray

Residues = NDArray[np.int64]

LOWEST_PRIME_BITS = 61
# Rosser & Schoenfeld 1962, Corollary 3: more than 3x / (5 log x) primes lie between x and 2x, here x = 2^61.
NUM_PRIMES_AT_LEAST = int(3 * 2**LOWEST_PRIME_BITS / (5 * LOWEST_PRIME_BITS * math.log(2)))

_LIMB_BITS = 21
_LIMB_MASK = (1 << _LIMB_BITS) - 1
_LIMB = float(1 << _LIMB_BITS)
# Three products of two limbs, summed this many times, stay below 2^53: float64 holds every sum exactly.
_LONGEST_SUM = 640
# Elements per pass of an elementwise product: its dozen temporaries stay in the cache.
_PASS = 1 << 14


@dataclass(frozen=True)
class PrimeField:
    """The integers modulo a prime of [2^61, 2^62]; an element is an int64 in 0 .. prime - 1.

    >>> field = PrimeField(2**62 - 57)
    >>> int(field.multiply(np.array([2**60]), np.array([2**60]))[0]) == 2**120 % field.prime
    True
    """

    prime: int

    def from_integers(self, values: object) -> Residues:
        """Python integers of any size, nested or not."""
        return np.asarray(np.asarray(values, dtype=object) % self.prime, dtype=np.int64)

    def draw(self, generator: np.random.Generator, *shape: int) -> Residues:
        """Independent uniform elements."""
        return generator.integers(0, self.prime, size=shape, dtype=np.int64)

    def power_of_two(self, exponents: NDArray[np.int64]) -> Residues:
        """2^exponent, negative exponents through the inverse of 2."""
        known, places = np.unique(exponents, return_inverse=True)
        powers = np.array([pow(2, int(exponent), self.prime) for exponent in known], dtype=np.int64)
        return powers[places].reshape(exponents.shape)

    def add(self, left: Residues, right: Residues) -> Residues:
        total = left + right
        total -= self.prime
        total += (total >> 63) & self.prime
        return total

    def subtract(self, left: Residues, right: Residues) -> Residues:
        difference = left - right
        difference += (difference >> 63) & self.prime
        return difference

    def multiply(self, left: Residues, right: Residues) -> Residues:
        """Elementwise, with broadcasting."""
        left, right = np.broadcast_arrays(left, right)
        product = np.empty(left.size, dtype=np.int64)
        first, second = left.reshape(-1), right.reshape(-1)
        for start in range(0, product.size, _PASS):
            place = slice(start, start + _PASS)
            product[place] = self._multiply_pass(first[place], second[place])
        return product.reshape(left.shape)

    def _multiply_pass(self, left: Residues, right: Residues) -> Residues:
        """Horner's rule over the limbs of ``right``."""
        real = left.astype(np.float64)
        product = np.zeros_like(left)
        for shift in (2 * _LIMB_BITS, _LIMB_BITS, 0):
            limb = (right >> shift) & _LIMB_MASK
            product = self._reduce((product << _LIMB_BITS) + left * limb, np.multiply(product, _LIMB) + real * limb)
        return product

    def sums_by_place(self, rows: Residues, places: Residues) -> tuple[Residues, Residues, int]:
        """Rows of equal place added up; the places there are, in order; the largest number of rows of a place."""
        if (places[1:] > places[:-1]).all():
            return rows, places, 1
        order = np.argsort(places, kind="stable")
        found, starts, counts = np.unique(places[order], return_index=True, return_counts=True)
        rows = rows[order]
        if len(found) == len(rows):
            return rows, found, 1
        # Halves of 31 bits cannot overflow in an int64 sum.
        low = np.add.reduceat(rows & (2**31 - 1), starts, axis=0) % self.prime
        high = np.add.reduceat(rows >> 31, starts, axis=0) % self.prime
        return self.add(low, self.multiply(high, np.array(2**31))), found, int(counts.max())

    def matmul(self, left: Residues, right: Residues) -> Residues:
        """The matrix product, batched as ``numpy.matmul`` is: nine float64 products of 21-bit limbs."""
        length = left.shape[-1]
        total = self._short_matmul(left[..., :_LONGEST_SUM], right[..., :_LONGEST_SUM, :])
        for start in range(_LONGEST_SUM, length, _LONGEST_SUM):
            part = slice(start, start + _LONGEST_SUM)
            total = self.add(total, self._short_matmul(left[..., part], right[..., part, :]))
        return total

    def _short_matmul(self, left: Residues, right: Residues) -> Residues:
        lefts, rights = _limbs(left), _limbs(right)
        total = (lefts[2] @ rights[2]).astype(np.int64)
        for order in (3, 2, 1, 0):
            pairs = [(i, order - i) for i in range(3) if 0 <= order - i < 3]
            digit = lefts[pairs[0][0]] @ rights[pairs[0][1]]
            for i, j in pairs[1:]:
                digit += lefts[i] @ rights[j]
            total = self._reduce((total << _LIMB_BITS) + digit.astype(np.int64), total * _LIMB + digit)
        return total

    def _reduce(self, wrapped: Residues, real: NDArray[np.float64]) -> Residues:
        """An integer v in 0 .. 2^85 modulo the prime, from v modulo 2^64 and v as a float64.

        v / prime is below 2^24 and known to 2^-26, so the quotient is off by at most one and the remainder, which
        lies between -prime and 2 prime, is right in wrapping 64-bit arithmetic.
        """
        real *= 1.0 / self.prime
        remainder = wrapped - real.astype(np.int64) * self.prime
        remainder -= self.prime
        remainder += (remainder >> 63) & self.prime
        remainder += (remainder >> 63) & self.prime
        return remainder


def random_prime_field(generator: np.random.Generator) -> PrimeField:
    """A prime uniform among those of [2^61, 2^62].

    >>> random_prime_field(np.random.default_rng(0)).prime.bit_length()
    62
    """
    while True:
        candidate = int(generator.integers(2**LOWEST_PRIME_BITS, 2 ** (LOWEST_PRIME_BITS + 1))) | 1
        if flint.fmpz(candidate).is_prime():
            return PrimeField(candidate)


def _limbs(values: Residues) -> list[NDArray[np.float64]]:
    return [((values >> shift) & _LIMB_MASK).astype(np.float64) for shift in (0, _LIMB_BITS, 2 * _LIMB_BITS)]
