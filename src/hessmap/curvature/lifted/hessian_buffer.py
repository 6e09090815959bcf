"""The matrix that blocks are written into, and the scratch memory they are formed in.

First touching a page costs as much as several flops per entry, so the matrix starts unwritten (in huge
pages), the first batch of samples copies and only later ones add, and scratch memory is taken once and used again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod

import torch
from torch import Tensor

from hessmap.curvature.layout import Layout
from hessmap.curvature.memory import unwritten


class HessianBuffer:
    """A symmetric matrix in the making. ``uses`` names a parameter once for every call of it: the block of two
    parameters that are used once each is written once per batch, all others start from zero. A parameter of which a
    call uses some entries alone, or in another order, counts as used more than once."""

    def __init__(self, layout: Layout, uses: Iterable[str], dtype: torch.dtype) -> None:
        self._places = dict(layout)
        self._dtype = dtype
        self.matrix = unwritten((layout.size, layout.size), dtype)
        self.is_first_batch = True
        self._scratch: dict[str, Tensor] = {}
        counts = Counter(uses)
        self._used_once = {name for name in layout.names if counts[name] == 1}
        for name, place in layout:
            if name not in self._used_once:
                self.matrix[place] = 0.0
                self.matrix[:, place] = 0.0

    def scratch(self, name: str, *shape: int) -> Tensor:
        """Unwritten memory of this shape; it is overwritten by the next call with the same name."""
        size = prod(shape)
        buffer = self._scratch.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self._scratch[name] = unwritten((size,), self._dtype)
        return buffer[:size].view(shape)

    def block(self, row: str, row_outputs: int, column: str, column_outputs: int) -> Tensor:
        """The block of two parameters as (outputs, features, outputs, features), to be written into."""
        rows, columns = self._places[row], self._places[column]
        features = (columns.stop - columns.start) // column_outputs
        return self.matrix[rows, columns].view(row_outputs, -1, column_outputs, features)

    def is_unwritten(self, row: str, column: str) -> bool:
        """Whether entries of the block are to be copied into, not added to."""
        return self.is_first_batch and row in self._used_once and column in self._used_once

    def rows(self, name: str, entries: Tensor) -> Tensor:
        """Rows of the matrix at some places of a flat parameter."""
        rows: Tensor = self._places[name].start + entries
        return rows
