"""Arrays of exact numbers: arithmetic modulo a 62-bit prime, and a bound on the numbers themselves.

Residues are computed with numpy's int64 and float64 alone. float64 numbers enter as what they are, integers times
powers of two.

The rank over GF(P) is python-flint's, behind random sketches where the matrix is large; ``failure_bound`` is the
probability that it is too small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

from hessmap.errors import require

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
# flint takes the entries as Python integers, about 50 bytes each: beyond this size a sketch comes first.
LARGEST_DIRECT_SIZE = 3000
_SMALLEST_SKETCH = 500  # columns of the first sketch


@dataclass(frozen=True)
class PrimeField:
    """The integers modulo a prime of [2^61, 2^62]; an element is an int64 in 0 .. prime - 1.

    Attributes:
        prime: The prime P.

    Example:
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

    Args:
        generator: Random generator.

    Returns:
        The field.

    Example:
        >>> random_prime_field(np.random.default_rng(0)).prime.bit_length()
        62
    """
    while True:
        candidate = int(generator.integers(2**LOWEST_PRIME_BITS, 2 ** (LOWEST_PRIME_BITS + 1))) | 1
        if flint.fmpz(candidate).is_prime():
            return PrimeField(candidate)


def _limbs(values: Residues) -> list[NDArray[np.float64]]:
    return [((values >> shift) & _LIMB_MASK).astype(np.float64) for shift in (0, _LIMB_BITS, 2 * _LIMB_BITS)]


Integers = NDArray[np.object_]


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
        return Height.largest((self, other)).height_of_sum(2)

    def height_of_sum(self, count: int) -> Height:
        """The height of a sum of ``count`` terms of this height."""
        growth = (max(count, 1) - 1).bit_length()
        return replace(self, magnitude_bits=self.magnitude_bits + growth)

    @staticmethod
    def largest(heights: Iterable[Height]) -> Height:
        """A height that bounds all of the given ones (zero, if there are none)."""
        bounds = [(item.denominator_bits, item.magnitude_bits, item.degree, item.division_bits) for item in heights]
        return Height(*map(max, zip(*bounds, strict=True))) if bounds else Height()


@dataclass(frozen=True, eq=False)
class FieldArray:
    """Reads like a numpy array; ``+``, ``-``, ``*``, ``@`` are exact and carry the height along.

    Attributes:
        field: The prime field.
        residues: Integers modulo the prime.
        height: Bound on the numbers that the residues represent.
    """

    field: PrimeField
    residues: Residues
    height: Height

    @property
    def shape(self) -> tuple[int, ...]:
        return self.residues.shape

    @property
    def mT(self) -> FieldArray:
        return self._with(self.residues.mT)

    def __len__(self) -> int:
        return len(self.residues)

    def __getitem__(self, place: Any) -> FieldArray:
        return self._with(self.residues[place])

    def reshape(self, *shape: int) -> FieldArray:
        return self._with(self.residues.reshape(shape))

    def transpose(self, *axes: int) -> FieldArray:
        return self._with(self.residues.transpose(axes))

    def __add__(self, other: FieldArray) -> FieldArray:
        return FieldArray(self.field, self.field.add(self.residues, other.residues), self.height + other.height)

    def __sub__(self, other: FieldArray) -> FieldArray:
        return FieldArray(self.field, self.field.subtract(self.residues, other.residues), self.height + other.height)

    def __mul__(self, other: FieldArray) -> FieldArray:
        return FieldArray(self.field, self.field.multiply(self.residues, other.residues), self.height * other.height)

    def __matmul__(self, other: FieldArray) -> FieldArray:
        height = (self.height * other.height).height_of_sum(self.shape[-1])
        return FieldArray(self.field, self.field.matmul(self.residues, other.residues), height)

    def _with(self, residues: Residues) -> FieldArray:
        return FieldArray(self.field, residues, self.height)


def from_floats(field: PrimeField, values: NDArray[np.float64]) -> FieldArray:
    """float64 numbers, mantissa * 2^exponent each, without rounding.

    Args:
        field: The prime field.
        values: Array of float64 numbers.

    Returns:
        The exact elements.
    """
    mantissas, exponents = dyadic_parts(values)
    residues = field.multiply(mantissas % field.prime, field.power_of_two(exponents))
    nonzero = mantissas != 0
    lowest = int(exponents[nonzero].min()) if nonzero.any() else 0
    highest = int(np.frexp(values[nonzero])[1].max()) if nonzero.any() else 0
    return FieldArray(field, residues, Height(max(0, -lowest), highest))


def from_integers(field: PrimeField, values: object) -> FieldArray:
    """Integers of any size, nested lists or arrays."""
    integers = np.asarray(values, dtype=object)
    largest = max((abs(int(value)) for value in integers.ravel()), default=0)
    return FieldArray(field, field.from_integers(integers), Height(0, largest.bit_length()))


def random_array(field: PrimeField, generator: np.random.Generator, *shape: int) -> FieldArray:
    """Independent uniform elements: variables of degree one, in the sense of ``Height``."""
    return FieldArray(field, field.draw(generator, *shape), Height(degree=1))


def zeros(field: PrimeField, *shape: int) -> FieldArray:
    return FieldArray(field, np.zeros(shape, dtype=np.int64), Height())


def ones(field: PrimeField, *shape: int) -> FieldArray:
    return FieldArray(field, np.ones(shape, dtype=np.int64), Height())


def identity(field: PrimeField, size: int) -> FieldArray:
    """The identity matrix over a field.

    Args:
        field: The prime field.
        size: Number of rows.

    Returns:
        The identity matrix.
    """
    return FieldArray(field, np.eye(size, dtype=np.int64), Height())


def concatenate(parts: Sequence[FieldArray], axis: int) -> FieldArray:
    """The parts side by side along an axis."""
    height = Height.largest(part.height for part in parts)
    return FieldArray(parts[0].field, np.concatenate([part.residues for part in parts], axis=axis), height)


def where(condition: NDArray[np.bool_], yes: FieldArray, no: FieldArray) -> FieldArray:
    """``yes`` where the condition holds, ``no`` elsewhere."""
    residues = np.where(condition, yes.residues, no.residues)
    return FieldArray(yes.field, residues, Height.largest((yes.height, no.height)))


def quotient(array: FieldArray, divisor: int) -> FieldArray:
    """Every element divided by a whole number, which counts as one power of it in the height."""
    if divisor == 1:
        return array
    field = array.field
    inverse = np.array(pow(divisor, -1, field.prime), dtype=np.int64)
    height = array.height * Height(division_bits=divisor.bit_length())
    return FieldArray(field, field.multiply(array.residues, inverse), height)


def sums_by_place(rows: FieldArray, places: NDArray[np.int64], num_places: int) -> FieldArray:
    """The sum of all rows of each place, zero where there is none."""
    sums, found, largest_count = rows.field.sums_by_place(rows.residues, places)
    residues = np.zeros((num_places, *sums.shape[1:]), dtype=np.int64)
    residues[found] = sums
    return FieldArray(rows.field, residues, rows.height.height_of_sum(largest_count))


def dyadic_parts(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Odd mantissas (or zero) and exponents with value = mantissa * 2^exponent, exactly.

    >>> mantissas, exponents = dyadic_parts(np.array([0.75, -6.0, 0.0]))
    >>> mantissas.tolist(), exponents.tolist()
    ([3, -3, 0], [-2, 1, 0])
    """
    require(bool(np.isfinite(values).all()), "exact arithmetic needs finite numbers", "there is NaN or inf")
    fractions, exponents = np.frexp(values)
    whole = np.ldexp(fractions, 53).astype(np.int64)
    lowest_bits = np.where(whole == 0, 1, whole & -whole)
    trailing_zeros = np.frexp(lowest_bits.astype(np.float64))[1].astype(np.int64) - 1
    powers = np.where(whole == 0, 0, exponents.astype(np.int64) - 53 + trailing_zeros)
    return whole >> trailing_zeros, powers


def scaled_integers(values: NDArray[np.float64]) -> tuple[Integers, int]:
    """Python integers and one number of bits with value = integer / 2^bits, exactly.

    >>> scaled_integers(np.array([0.75, -6.0]))
    (array([3, -24], dtype=object), 2)
    """
    mantissas, exponents = dyadic_parts(values)
    bits = max(0, -int(exponents.min(initial=0)))
    integers = mantissas.astype(object) * np.left_shift(1, (exponents + bits).astype(object))
    return np.asarray(integers, dtype=object), bits


@dataclass(frozen=True)
class FieldRank:
    """A rank over GF(P), never above the true one, and the probability that it is below."""

    value: int
    failure_bound: float
    method: str


def field_rank(matrix: FieldArray, generator: np.random.Generator) -> FieldRank:
    """The rank of a matrix; a large one is multiplied by random matrices from both sides.

    Args:
        matrix: Matrix over the field.
        generator: Random generator of the sketches.

    Returns:
        The rank and its failure bound.

    Notes:
        A sketch of size k has rank min(k, rank) except with a probability that ``failure_bound`` covers, because the
        sketch's entries count as drawn variables in its height. A rank below k is therefore the rank; otherwise k
        doubles.
    """
    full = min(matrix.shape)
    size = full if full <= LARGEST_DIRECT_SIZE else _SMALLEST_SKETCH
    doubt = 0.0
    while True:
        sketch = _sketch(matrix, size, generator)
        value = _direct_rank(sketch)
        doubt += failure_bound(sketch.height, min(sketch.shape))
        if value < size or size == full or sketch is matrix:
            method = "dense" if sketch is matrix else f"sketch of size {size}"
            return FieldRank(value, min(1.0, doubt), method)
        size = min(2 * size, full)


def _sketch(matrix: FieldArray, size: int, generator: np.random.Generator) -> FieldArray:
    """The matrix with each side that is much longer than ``size`` mixed down to it."""
    rows, columns = matrix.shape
    if rows > 2 * size:
        matrix = random_array(matrix.field, generator, size, rows) @ matrix
    if columns > 2 * size:
        matrix = matrix @ random_array(matrix.field, generator, columns, size)
    return matrix


def _direct_rank(matrix: FieldArray) -> int:
    rows, columns = matrix.shape
    if rows == 0 or columns == 0:
        return 0
    return int(flint.nmod_mat(rows, columns, matrix.residues.ravel().tolist(), matrix.field.prime).rank())


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
