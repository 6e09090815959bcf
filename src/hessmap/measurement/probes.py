"""An operator met through products with random vectors: counted, scaled, and refused when they are not finite."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, isfinite, log2

import torch
from torch import Tensor

from hessmap.curvature.operator import LinearOperator
from hessmap.errors import InvalidInput, require, sentence
from hessmap.measurement.matrices import Matrix, float_array
from hessmap.results import Provenance, provenance

BLOCK = 16


class Probed:
    """Products in units of a power of two near the size of the first ones, so that squares neither overflow nor
    vanish."""

    def __init__(self, matrix: Matrix, seed: int) -> None:
        shape: tuple[int, ...]
        self._product: Callable[[Tensor], Tensor]
        if isinstance(matrix, LinearOperator):
            shape, self._product = matrix.shape, matrix.matmat
        else:
            array = torch.from_numpy(float_array(matrix).copy())
            shape, self._product = tuple(array.shape), array.matmul
        require(len(shape) == 2 and shape[0] == shape[1], "an estimate needs a square matrix", f"got shape {shape}")
        self.size = int(shape[0])
        self.seed = seed
        self.generator = torch.Generator().manual_seed(seed)
        self.num_products = 0
        self.unit = 0.0  # 0 until a product was not zero
        self.provenance: Provenance = getattr(matrix, "provenance", None) or provenance(seed=seed)

    def product(self, vectors: Tensor) -> Tensor:
        """In units of ``unit``."""
        if not vectors.numel():
            return torch.zeros_like(vectors)
        images = self._product(vectors)
        self.num_products += vectors.shape[1]
        largest = float(images.abs().max())
        if not isfinite(largest):
            must = "the products of an operator must be finite"
            raise InvalidInput(sentence(must, "there is NaN or inf in one"))
        if self.unit == 0.0 and largest > 0:
            self.unit = 2.0 ** floor(log2(largest))
        return images / self.unit if self.unit else images

    @property
    def scale(self) -> float:
        return self.unit or 1.0

    def signs(self, count: int) -> Tensor:
        """Random vectors of ones and minus ones, the least noisy for traces and diagonals."""
        drawn = torch.randint(0, 2, (self.size, count), generator=self.generator)
        return drawn.to(torch.float64) * 2 - 1

    def normals(self, count: int) -> Tensor:
        return torch.randn(self.size, count, generator=self.generator, dtype=torch.float64)

    def identity(self, start: int, stop: int) -> Tensor:
        columns = torch.zeros(self.size, stop - start, dtype=torch.float64)
        columns[torch.arange(start, stop), torch.arange(stop - start)] = 1.0
        return columns


def orthonormal_range(images: Tensor) -> Tensor:
    """An orthonormal basis of the columns, without the directions that are rounding."""
    if not images.numel() or not float(images.abs().max()):
        return images[:, :0]
    left, values, _ = torch.linalg.svd(images, full_matrices=False)
    kept: Tensor = left[:, values > 1e-13 * max(images.shape) * float(values.max())]
    return kept
