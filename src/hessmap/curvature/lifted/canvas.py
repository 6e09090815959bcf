"""The matrix that blocks are written into, and the scratch memory they are formed in.

First touching a page costs as much as several flops per entry, so the matrix starts unwritten (huge pages, through
numpy), the first visit of a block copies and only later ones add, and scratch memory is taken once and used again.
"""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from torch import Tensor

from hessmap.curvature.layout import Layout

Place = tuple[slice, int]  # where in the flat vector, and how many outputs its rows are split into


class Canvas:
    """A symmetric matrix in the making; ``finished`` zeroes what nobody wrote."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.matrix = _fresh(layout.size * layout.size).view(layout.size, layout.size)
        self._written: set[tuple[int, int]] = set()
        self._scratch: dict[str, Tensor] = {}

    def scratch(self, name: str, *shape: int) -> Tensor:
        """Unwritten memory of this shape; it is overwritten by the next call with the same name."""
        size = prod(shape)
        held = self._scratch.get(name)
        if held is None or held.numel() < size:
            held = self._scratch[name] = _fresh(size)
        return held[:size].view(shape)

    def block(self, rows: Place, columns: Place) -> Tensor:
        """A block as (outputs, features, outputs, features), to be written into."""
        (row, row_outputs), (column, column_outputs) = rows, columns
        return self.matrix[row, column].view(row_outputs, -1, column_outputs, _size(column) // column_outputs)

    def is_new(self, rows: slice, columns: slice) -> bool:
        """Whether nothing was written to the block; asking counts as writing it."""
        key = rows.start, columns.start
        if key in self._written:
            return False
        self._written.add(key)
        return True

    def finished(self) -> Tensor:
        for _, rows in self.layout:
            for _, columns in self.layout:
                if (rows.start, columns.start) not in self._written:
                    self.matrix[rows, columns] = 0.0
        return self.matrix


def _size(place: slice) -> int:
    return int(place.stop - place.start)


def _fresh(count: int) -> Tensor:
    return torch.from_numpy(np.empty(count, dtype=np.float64))
