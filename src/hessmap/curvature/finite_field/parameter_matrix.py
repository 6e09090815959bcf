"""A symmetric matrix over the parameters, filled block by block modulo the prime."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hessmap.curvature.finite_field.field_array import FieldArray
from hessmap.curvature.finite_field.height import Height
from hessmap.curvature.finite_field.prime_field import PrimeField, Residues

Positions = NDArray[np.int64]


class ParameterMatrix:
    """Blocks of layers are added where their parameters are; places with one parameter add up, constants drop out."""

    def __init__(self, field: PrimeField, num_parameters: int) -> None:
        self._field = field
        self._residues: Residues = np.zeros((num_parameters, num_parameters), dtype=np.int64)
        self._heights: list[Height] = []

    def add(self, block: FieldArray, rows: Positions, columns: Positions) -> None:
        """Add a block whose rows and columns stand for the parameters at the given positions (-1: a constant)."""
        folded, row_count, row_places = self._folded(block.residues, rows)
        folded, column_count, column_places = self._folded(folded.T, columns)
        place = np.ix_(row_places, column_places)
        self._residues[place] = self._field.add(self._residues[place], folded.T)
        self._heights.append(block.height.summed(row_count * column_count))

    def to_array(self) -> FieldArray:
        height = Height.largest(self._heights).summed(len(self._heights))
        return FieldArray(self._field, self._residues, height)

    def _folded(self, residues: Residues, positions: Positions) -> tuple[Residues, int, Positions]:
        """Rows of equal position added up; the largest number of such rows; the positions that are left."""
        kept = np.flatnonzero(positions >= 0)
        sums, places, largest_count = self._field.sums_by_place(residues[kept], positions[kept])
        return sums, largest_count, places
