"""Block Lanczos in one Krylov space: eigenpairs and linear systems are found by it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hessmap.curvature.lanczos.measured_orthogonality import MeasuredOrthogonality
from hessmap.curvature.lanczos.orthogonalisation import orthonormal_directions, pieces, remove_basis, row_lengths
from hessmap.curvature.lanczos.process import LanczosProcess
from hessmap.curvature.lanczos.scaled_product import ScaledProduct
from hessmap.curvature.memory import unwritten

_NEGLIGIBLE = 1e-13  # of the norm: what is left of a direction that the basis already holds is rounding
_PIECE = 4096  # entries of every vector that are combined at a time


class State(NamedTuple):
    """What an expansion changes, beside what it adds to the basis and to the projected matrix."""

    dimension: int
    block: Tensor
    coupling: Tensor
    num_near: int | None
    is_closed: bool


class BlockLanczos(LanczosProcess):
    """Every block is cleared of the whole basis; directions that vanish from it are dropped. With a ``generator``
    random ones take their place, as long as there are any: then the process goes on when a Krylov space has ended.

    ``is_semi``: a basis in float32 is taken out of a block only where the block is seen to have lost its orthogonality
    to it; inner products stay below 3e-4, the recurrence is right to about 1e-5 of the norm. ``norm`` is that of the
    operator, as far as it is known.
    """

    def __init__(
        self,
        product: ScaledProduct,
        capacity: int,
        generator: torch.Generator | None = None,
        precision: torch.dtype = torch.float64,
        is_semi: bool = False,
    ) -> None:
        super().__init__(product, (), capacity, capacity, precision)
        self.generator = generator
        self.norm = 0.0
        self.orthogonality = MeasuredOrthogonality(self.size) if is_semi else None
        self._num_near: int | None = None  # of the last vectors, in which the image of the block has parts; None: all
        self._is_closed = True  # the operator leads out of the basis into the block alone

    @property
    def precision(self) -> torch.dtype:
        """Of the stored vectors; blocks are in that of the product."""
        return self._vectors.dtype

    @property
    def state(self) -> State:
        return State(self.dimension, self.block, self.coupling, self._num_near, self._is_closed)

    @state.setter
    def state(self, state: State) -> None:
        self.dimension, self.block, self.coupling, self._num_near, self._is_closed = state

    def start(self, rows: Tensor, width: int) -> None:
        """Begin with some directions, filled up to a width; or go on with them, which must lie beside the basis."""
        most = self.size - self.dimension
        largest = float(rows.abs().max()) if rows.numel() else 0.0
        rows = (rows / (largest or 1.0)).to(self.product.dtype)
        found, _ = orthonormal_directions(rows, self.basis, 0.0, most, _NEGLIGIBLE)
        self.block = self._with_random_directions(found, width)
        self.coupling = torch.zeros(self.width, self.dimension, dtype=torch.float64)
        self._num_near, self._is_closed = None, not self.dimension

    def widen(self, rows: Tensor, most: int) -> None:
        """Add directions of some rows, ``most`` of them, to the next block; nothing in the basis is coupled to them."""
        fresh = self._beside(rows, self.block, most)
        self.block = torch.cat([self.block, fresh])
        self.coupling = torch.cat([self.coupling, self.coupling.new_zeros(len(fresh), self.dimension)])

    def ritz(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ritz values in ascending order, their vectors in the basis (columns), and the norms of their residuals."""
        values, vectors = torch.linalg.eigh(self.projection)
        if self.dimension:
            self.norm = max(self.norm, float(values.abs().max()))
        return values, vectors, torch.linalg.vector_norm(self.coupling @ vectors, dim=0)

    def restrict(self, values: Tensor, vectors: Tensor) -> None:
        """A thick restart: keep some Ritz vectors alone; the block and its coupling stay."""
        kept = vectors.shape[1]
        mixture = vectors.T.to(self.precision)
        for part in pieces(self.size, _PIECE):  # in place, a few entries of every vector at a time
            self._vectors[:kept, part] = mixture @ self.basis[:, part]
        self.coupling = self.coupling @ vectors
        self.dimension = kept
        self._projected[:kept, :kept] = torch.diag(values)
        self._num_near = None
        if self.orthogonality is not None:
            self.orthogonality.forget()

    def combine(self, vectors: Tensor) -> Tensor:
        """Vectors of the basis as vectors of the whole space, one a column."""
        whole = unwritten((vectors.shape[1], self.size), torch.float64)
        mixture = vectors.T.to(self.precision)
        for part in pieces(self.size, _PIECE):
            whole[:, part] = mixture @ self.basis[:, part]
        return whole.T

    def _store_block(self) -> None:
        super()._store_block()
        if self.precision != torch.float64:
            self.block = self.basis[-self.width :].to(self.product.dtype)

    def _remove_basis(self, rest: Tensor) -> Tensor:
        width, before = rest.shape[0], self._num_near
        self._num_near = width if self._is_closed else None
        if self.orthogonality is None or before is None:
            inside = remove_basis(rest, self.basis, 2 * width)
        else:
            near = before + width
            inside = remove_basis(rest, self.basis[-near:])
            if self.orthogonality.is_lost(self.basis[:-near], rest):
                remove_basis(rest, self.basis)
        self.norm = max(self.norm, float(torch.linalg.vector_norm(inside, dim=0).max()))
        return inside

    def _make_block(self, rest: Tensor, width: int) -> Tensor:
        most = self.size - self.dimension
        found, coefficients = orthonormal_directions(rest, self.basis, self.norm, most, _NEGLIGIBLE)
        self.block = self._with_random_directions(found, width)
        return coefficients

    def _with_random_directions(self, found: Tensor, width: int) -> Tensor:
        """With random directions in the place of those that vanished."""
        missing = min(width, self.size - self.dimension) - found.shape[0]
        if self.generator is None or missing <= 0:
            return found
        random = torch.randn(missing, self.size, generator=self.generator, dtype=self.product.dtype)
        return torch.cat([found, self._beside(random, found, missing)])

    def _beside(self, rows: Tensor, block: Tensor, most: int) -> Tensor:
        """Directions of rows, random or of length one, without their parts in the basis and in the block."""
        basis, rest = self.basis, rows.to(self.product.dtype, copy=True)
        reference = float(row_lengths(rest).max()) if len(rows) else 0.0
        for _ in range(2):
            remove_basis(rest, basis)
            remove_basis(rest, block)
        most = min(most, self.size - self.dimension - len(block))
        return orthonormal_directions(rest, basis, reference, most, _NEGLIGIBLE)[0]
