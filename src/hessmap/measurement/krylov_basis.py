"""An orthonormal basis that grows by blocks, and the operator seen in it.

    A Q = Q T + B C,    Q^T Q = I,  Q^T B = 0,  T = Q^T A Q

Q is the basis, B the next block and C its coupling. Every new block is orthogonalised against the whole basis until
nothing is left to take; directions that vanish in it are dropped, and replaced by random ones while there are any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor, isfinite, log2

import torch
from torch import Tensor

from hessmap.errors import require

Product = Callable[[Tensor], Tensor]
_DOUBLE = torch.float64
_DEPENDENT = 1e-13  # of the norm: what is left of a direction that the basis already holds is rounding
_LIFTED = 1e-3  # of the norm: a direction that is smaller is cleared once more after it was normalised
_UNEVEN = 0.1  # of the longest direction of a block: the same for a basis in float32
_PRESENT = 0.1  # how much of a new direction must be in the wanted Ritz vectors to count
_SETTLED = 0.5  # of a row: a pass that takes less leaves nothing above the rounding of what is left


@dataclass(frozen=True)
class Probe:
    """What a random block showed: True if nothing new, False if something, None if it ran out of room before; the Ritz
    values with it, the share of each Ritz vector that is new, and its coordinates along the new directions (rows)."""

    verdict: bool | None
    values: Tensor
    share: Tensor
    coordinates: Tensor


class KrylovBasis:
    """The state of a block Lanczos iteration with full re-orthogonalisation and thick restarts.

    A basis that is held in float32, for products in float32, is orthonormal to 1e-7; blocks are float64 in any case.
    """

    def __init__(
        self, product: Product, size: int, capacity: int, generator: torch.Generator, precision: torch.dtype = _DOUBLE
    ) -> None:
        self.product = product
        self.size = size
        self.generator = generator
        self.num_products = 0
        self.unit = 0.0  # a power of two near the first images: all values are in units of it
        self.norm = 0.0  # of the operator, as far as it is known
        self._columns = torch.empty(capacity, size, dtype=precision)  # one basis vector a row
        self._projected = torch.zeros(capacity, capacity, dtype=torch.float64)
        self.dimension = 0
        self.block = torch.empty(0, size, dtype=torch.float64)
        self.coupling = torch.empty(0, 0, dtype=torch.float64)

    @property
    def precision(self) -> torch.dtype:
        return self._columns.dtype

    @property
    def basis(self) -> Tensor:
        """Orthonormal rows."""
        return self._columns[: self.dimension]

    @property
    def projected(self) -> Tensor:
        return self._projected[: self.dimension, : self.dimension]

    @property
    def room(self) -> int:
        """How many vectors the store can still take."""
        return len(self._columns) - self.dimension

    def start(self, block: Tensor, width: int) -> None:
        """Begin with given directions (rows), filled up to a width by random ones."""
        self.block = self._orthonormal(block)[0][: self.room]
        self._fill(width)
        self.coupling = torch.zeros(len(self.block), 0, dtype=torch.float64)

    def expand(self) -> None:
        """Take the block into the basis, multiply it, and make the next one of what is new."""
        width, old = len(self.block), self.dimension
        self._columns[old : old + width] = self.block
        self.block = self._columns[old : old + width].double()
        self.dimension += width
        rest = self._images()
        new = slice(old, self.dimension)
        self.norm = max(self.norm, float(rest.norm(dim=1).max()))
        inside = self._removed(rest)
        self._projected[: self.dimension, new] = inside
        self._projected[new, : self.dimension] = inside.T
        self._projected[new, new] = (inside[old:] + inside[old:].T) / 2
        self.block, triangle = self._orthonormal(rest)
        self.coupling = torch.zeros(len(self.block), self.dimension, dtype=torch.float64)
        self.coupling[:, new] = triangle
        self._fill(width)

    def _images(self) -> Tensor:
        images = self.product(self.block.T).T
        self.num_products += len(self.block)
        largest = float(images.abs().max())
        must, got = "the products of an operator must be finite", "there is NaN or inf in one"
        require(isfinite(largest), must, got)
        if self.unit == 0.0:
            self.unit = 2.0 ** floor(log2(largest)) if largest > 0 else 0.0
        return images / self.unit if self.unit else images.clone()

    def ritz(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ritz values in ascending order, their vectors in the basis (columns), and the norms of their residuals."""
        values, vectors = torch.linalg.eigh(self.projected)
        if len(values):
            self.norm = max(self.norm, float(values.abs().max()))
        return values, vectors, (self.coupling @ vectors).norm(dim=0)

    def restart(self, values: Tensor, vectors: Tensor) -> None:
        """Keep some Ritz vectors alone; the block and its coupling stay."""
        kept = vectors.shape[1]
        for rows in _pieces(self.size):  # in place, a few entries of every vector at a time
            self._columns[:kept, rows] = (vectors.T @ self._columns[: self.dimension, rows].double()).to(self.precision)
        self.coupling = self.coupling @ vectors
        self.dimension = kept
        self._projected[:kept, :kept] = torch.diag(values)

    def combined(self, vectors: Tensor) -> Tensor:
        """Vectors of the basis as vectors of the whole space, one a column."""
        whole = torch.empty(vectors.shape[1], self.size, dtype=torch.float64)
        for rows in _pieces(self.size):
            whole[:, rows] = vectors.T @ self.basis[:, rows].double()
        return whole.T

    def join(self, coordinates: Tensor, count: int) -> None:
        """Add the main directions among what the last probe found (rows of coordinates) to the next block."""
        _, sizes, directions = torch.linalg.svd(coordinates, full_matrices=False)
        found = directions[sizes > _PRESENT][:count]
        rows = found @ self._columns[self.dimension : self.dimension + coordinates.shape[1]].double()
        self._append(self._orthonormal(self._cleared(rows, self.block), scale=1.0)[0])

    def probe(self, width: int, min_steps: int, is_clear: Callable[[Tensor, Tensor, Tensor], bool | None]) -> Probe:
        """Let a random block and its images join the basis, step by step, until ``is_clear`` has an answer.

        A random direction holds little of a missed eigenvector, so some steps are made before it is asked. It is told
        the Ritz values (ascending), their residuals as far as the new vectors know them, and the share of each Ritz
        vector that is new. The basis stays as it was; what the probe added is thrown away.
        """
        kept = self.dimension, self.block, self.coupling
        self.block = torch.empty(0, self.size, dtype=torch.float64)
        self._fill(min(width, self.room))
        verdict, num_steps = None, 0
        values, vectors, residuals = self.ritz()
        while verdict is None and 0 < len(self.block) <= self.room:
            self.expand()
            num_steps += 1
            values, vectors, residuals = self.ritz()
            is_last = not 0 < len(self.block) <= self.room
            if num_steps >= min_steps or is_last:
                verdict = is_clear(values, residuals, vectors[kept[0] :].square().sum(0))
        new = vectors[kept[0] :].T
        self.dimension, self.block, self.coupling = kept
        return Probe(verdict, values, new.square().sum(1), new)

    def _fill(self, width: int) -> None:
        """Random directions in the place of those that vanished; the coupling to them is zero."""
        missing = min(width, self.size - self.dimension) - len(self.block)
        if missing <= 0:
            return
        random = torch.randn(missing, self.size, generator=self.generator, dtype=torch.float64)
        fresh = self._orthonormal(self._cleared(random, self.block), scale=float(self.size) ** 0.5)[0]
        self._append(fresh)

    def _append(self, fresh: Tensor) -> None:
        """Widen the block by directions (rows) that nothing in the basis is coupled to."""
        self.block = torch.cat([self.block, fresh])
        padding = torch.zeros(len(fresh), self.coupling.shape[1], dtype=torch.float64)
        self.coupling = torch.cat([self.coupling, padding])

    def _cleared(self, directions: Tensor, block: Tensor) -> Tensor:
        """Directions without their parts in the basis and in the block."""
        rest = directions.clone()
        for _ in range(2):
            self._removed(rest)
            rest -= (rest @ block.T) @ block
        return rest

    def _removed(self, rest: Tensor) -> Tensor:
        """Take the basis out of some rows, in place, and return what was taken, (dimension, rows).

        The last two blocks first, which is all there is to take in exact arithmetic; then the whole basis. What a pass
        leaves of it is rounding of the row before the pass, so it is made again where that was much longer ("twice is
        enough": Parlett 1980, The Symmetric Eigenvalue Problem, section 6-9).
        """
        taken = rest.new_zeros(self.dimension, len(rest))
        near = self.basis[max(0, self.dimension - 2 * len(rest)) :].double()
        if len(near) < self.dimension:
            taken[self.dimension - len(near) :] = near @ rest.T
            rest.addmm_(taken[self.dimension - len(near) :].T, near, alpha=-1)
        for _ in range(3):
            inside = self.basis @ rest.to(self.precision).T
            rest -= inside.T @ self.basis
            taken += inside
            if not inside.numel() or bool((inside.norm(dim=0) <= _SETTLED * rest.norm(dim=1)).all()):
                break
        return taken

    def _orthonormal(self, rows: Tensor, scale: float | None = None) -> tuple[Tensor, Tensor]:
        """Orthonormal directions of some rows, and the coefficients with coefficients^T directions = rows.

        Directions below 1e-13 of the scale (by default the norm of the operator) are dropped.
        """
        if not len(rows):
            return rows, rows.new_zeros(0, 0)
        reference = (self.norm or float(rows.norm(dim=1).max())) if scale is None else scale
        length = float(rows.norm()) if len(rows) == 1 else 0.0
        if length >= _LIFTED * reference and length > 0:
            return rows / length, rows.new_full((1, 1), length)
        found, triangle = _triangular(rows)
        left, values, right = torch.linalg.svd(triangle, full_matrices=False)
        kept = values > _DEPENDENT * reference
        if not kept.all():
            found, triangle = found @ left[:, kept], values[kept, None] * right[kept]
        found = found.T.contiguous()
        short = max(_LIFTED * reference, 0.0 if self.precision == _DOUBLE else _UNEVEN * float(values[0]))
        if len(found) and values[kept].min() < short:
            # Dividing by a small size lifts what rounding left of the basis: take it out again.
            self._removed(found)
            found = torch.linalg.qr(found.T).Q.T.contiguous()
            triangle = found @ rows.T
        return found, triangle


def _triangular(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Q (columns) and R with Q R = rows^T: Cholesky twice where the rows are far from dependent, else Householder."""
    found, triangle = rows, torch.eye(len(rows), dtype=rows.dtype)
    for _ in range(2):
        factor, info = torch.linalg.cholesky_ex(found @ found.T)
        sizes = factor.diagonal()
        if int(info) or float(sizes.min()) < _LIFTED * float(sizes.max()):
            columns, upper = torch.linalg.qr(rows.T)
            return columns, upper
        found = torch.linalg.solve_triangular(factor, found, upper=False)
        triangle = factor.T @ triangle
    return found.T, triangle


def _pieces(size: int, step: int = 4096) -> list[slice]:
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]
