"""Rank over GF(P) with python-flint, behind random sketches where the matrix is large; its probability of error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import flint
import numpy as np

from hessmap.exact.field import LOWEST_PRIME_BITS, NUM_PRIMES_AT_LEAST, FieldArray, Height, random_array

# flint takes the entries as Python integers, about 50 bytes each: beyond this size a sketch comes first.
LARGEST_DIRECT_SIZE = 3000
_SMALLEST_SKETCH = 500


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
