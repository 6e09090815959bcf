"""What all Lanczos processes have in common: Krylov spaces of a symmetric product, grown block by block. In each

    A Q = Q T + B C,    Q^T Q = I,  Q^T B = 0,  T = Q^T A Q

with the basis Q, the matrix T projected onto it, the next block B and its coupling C. How far Q stays orthogonal, and
what becomes of directions that vanish from a block, is for the process to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from hessmap.curvature.lanczos.scaled_product import ScaledProduct
from hessmap.curvature.memory import unwritten


class LanczosProcess(ABC):
    """One Krylov space, or several that share every product; then all tensors have a first dimension of spaces.

    Vectors are rows: ``block`` is (width, size), in the number format of the product, ``coupling`` (width, dimension).
    The basis may be stored in float32, for products in float32: it is orthonormal to 1e-7 then. Values are in the unit
    of the product.
    """

    def __init__(
        self, product: ScaledProduct, spaces: tuple[int, ...], capacity: int, num_stored: int, precision: torch.dtype
    ) -> None:
        self.product = product
        self.size = product.size
        self.dimension = 0
        self.block = torch.zeros(*spaces, 0, self.size, dtype=product.dtype)
        self.coupling = torch.zeros(*spaces, 0, 0, dtype=torch.float64)
        self._vectors = unwritten((*spaces, num_stored, self.size), precision)
        self._projected = torch.zeros(*spaces, capacity, capacity, dtype=torch.float64)

    @property
    def capacity(self) -> int:
        """How many vectors there can be."""
        return self._projected.shape[-1]

    @property
    def room(self) -> int:
        """How many more vectors there can be."""
        return self.capacity - self.dimension

    @property
    def width(self) -> int:
        """Of the next block; 0 when the spaces have ended: the operator does not lead out of them."""
        return self.block.shape[-2]

    @property
    def basis(self) -> Tensor:
        """Orthonormal rows."""
        return self._vectors[..., : self.dimension, :]

    @property
    def projection(self) -> Tensor:
        return self._projected[..., : self.dimension, : self.dimension]

    def expand(self) -> None:
        """Take the block into the basis, multiply it, and make the next one of what is new."""
        old, width = self.dimension, self.width
        self._store_block()
        rest = self._images()
        inside = self._remove_basis(rest)
        self._project(old, inside)
        coefficients = self._make_block(rest, width)
        self.coupling = torch.zeros(*self.block.shape[:-1], self.dimension, dtype=torch.float64)
        self.coupling[..., : coefficients.shape[-2], old:] = coefficients

    @abstractmethod
    def _remove_basis(self, rest: Tensor) -> Tensor:
        """Take the basis, or its last vectors, out of new rows, in place, and return what was taken of them."""

    @abstractmethod
    def _make_block(self, rest: Tensor, width: int) -> Tensor:
        """Make the next block of rows without a part in the basis; return its coefficients in them."""

    def _store_block(self) -> None:
        old = self.dimension
        self.dimension += self.width
        self._vectors[..., old : self.dimension, :] = self.block

    def _images(self) -> Tensor:
        return self.product(self.block.flatten(0, -2).T).T.contiguous().view_as(self.block)

    def _project(self, old: int, inside: Tensor) -> None:
        """Write the columns of the new vectors into T: what was taken of the last vectors, the earlier ones being 0."""
        new, rows = slice(old, self.dimension), slice(self.dimension - inside.shape[-2], self.dimension)
        self._projected[..., new], self._projected[..., new, :] = 0.0, 0.0
        self._projected[..., rows, new] = inside
        self._projected[..., new, rows] = inside.mT
        if inside.shape[-1] > 1:
            corner = inside[..., old - self.dimension :, :]
            self._projected[..., new, new] = (corner + corner.mT) / 2
