"""Blocks of a larger symmetric operator, whose products are those of the whole with vectors that are zero elsewhere.

Their dense forms take products with their own columns alone (``SymmetricOperator.dense_block``): a small block of a
network whose Hessian fits no memory has a matrix and a spectrum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hessmap.curvature.operator import LinearOperator, Places, SymmetricOperator
from hessmap.records import Provenance


class SymmetricBlock(SymmetricOperator):
    """Some rows and the same columns of a larger operator; it has the larger one's scale and provenance."""

    def __init__(self, whole: SymmetricOperator, places: Places) -> None:
        self.whole = whole
        self.places = places
        self.dtype: torch.dtype = whole.dtype

    @property
    def scale(self) -> float | None:
        return self.whole.scale

    @property
    def provenance(self) -> Provenance | None:
        return self.whole.provenance

    def expect_products(self, count: int) -> None:
        self.whole.expect_products(count)

    def matrix_for_products(self, count: int) -> Tensor | None:
        found = self.whole.matrix_for_products(count)
        return None if found is None else found[self.places][:, self.places].contiguous()

    def matmat(self, vectors: Tensor) -> Tensor:
        return self.whole.matmat(_embedded_rows(vectors, self.places, self.whole.size))[self.places]

    def to_dense(self) -> Tensor:
        return self._copy_of_kept(lambda: self.whole.dense_block(self.places, self.places))


class DiagonalBlock(SymmetricBlock):
    """The block of one parameter."""

    def __init__(self, whole: SymmetricOperator, name: str) -> None:
        assert whole.layout is not None
        super().__init__(whole, whole.layout[name])
        self.layout = whole.layout.restricted_to([name])

    @property
    def size(self) -> int:
        assert self.layout is not None
        return self.layout.size

    def exact_diagonal(self, max_products: float | None = None) -> Tensor | None:
        diagonal = self.whole.exact_diagonal(max_products)
        return None if diagonal is None else diagonal[self.places]


class PrincipalBlock(SymmetricBlock):
    """The rows and columns at some places, wherever they are."""

    def __init__(self, whole: SymmetricOperator, places: Tensor) -> None:
        super().__init__(whole, places)
        self._size = len(places)

    @property
    def size(self) -> int:
        return self._size

    @property
    def block_size(self) -> int:
        return self.whole.block_size


class RectangularBlock(LinearOperator):
    """The block of a pair of parameters: a map from the second's directions to the first's gradients."""

    def __init__(self, whole: SymmetricOperator, rows: slice, columns: slice) -> None:
        self.whole = whole
        self.rows = rows
        self.columns = columns
        self.dtype = whole.dtype

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    @property
    def scale(self) -> float | None:
        return self.whole.scale

    def matmat(self, vectors: Tensor) -> Tensor:
        return self.whole.matmat(_embedded_rows(vectors, self.columns, self.whole.size))[self.rows]

    def to_dense(self) -> Tensor:
        return self._copy_of_kept(lambda: self.whole.dense_block(self.rows, self.columns))


def _embedded_rows(vectors: Tensor, places: Places, size: int) -> Tensor:
    """The rows of ``vectors`` at their places among ``size``, and zeros elsewhere."""
    padded = vectors.new_zeros(size, vectors.shape[1])
    padded[places] = vectors
    return padded
