"""Rank over GF(P) with python-flint, behind random sketches where the matrix is large."""

from __future__ import annotations

from dataclasses import dataclass

import flint
import numpy as np

from hessmap.curvature.finite_field.field_array import FieldArray, drawn
from hessmap.curvature.finite_field.height import failure_bound

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

    A sketch of size k has rank min(k, rank) but with a probability that ``failure_bound`` covers, because the
    sketch's entries count as drawn variables in its height. A rank below k is therefore the rank; otherwise k doubles.
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
        matrix = drawn(matrix.field, generator, size, rows) @ matrix
    if columns > 2 * size:
        matrix = matrix @ drawn(matrix.field, generator, columns, size)
    return matrix


def _direct_rank(matrix: FieldArray) -> int:
    rows, columns = matrix.shape
    if rows == 0 or columns == 0:
        return 0
    return int(flint.nmod_mat(rows, columns, matrix.residues.ravel().tolist(), matrix.field.prime).rank())
