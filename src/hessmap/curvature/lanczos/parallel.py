"""Lanczos in several Krylov spaces side by side, one vector a step: Gauss rules and norms are found by it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from hessmap.curvature.lanczos.orthogonalisation import (
    OrthogonalityEstimate,
    inner_products,
    remove_basis,
    row_lengths,
)
from hessmap.curvature.lanczos.process import LanczosProcess
from hessmap.curvature.lanczos.scaled_product import Product, ScaledProduct

Orthogonality = Literal["semi", "local"]
_NEGLIGIBLE = 1e-12  # of the norm: what is left of a Krylov space that has ended is rounding


class ParallelLanczos(LanczosProcess):
    """The three-term recurrence from several starts (rows), which share every product.

    Orthogonality is "semi", to half of all digits, or "local", of three successive vectors, and no others are stored.
    ``num_vectors`` counts those of each space until it ended; its vectors are zero from then on.
    """

    def __init__(self, product: ScaledProduct, starts: Tensor, capacity: int, orthogonality: Orthogonality) -> None:
        count, is_local = starts.shape[0], orthogonality == "local"
        super().__init__(product, (count,), capacity, 0 if is_local else capacity, torch.float64)
        self.norms = torch.zeros(count, dtype=torch.float64)  # the largest coefficients so far
        self.num_vectors = torch.zeros(count, dtype=torch.int64)
        self.has_ended = torch.zeros(count, dtype=torch.bool)
        self.estimate = None if is_local else OrthogonalityEstimate(count, capacity, self.size)
        self._before: Tensor | None = None
        self._normalise(starts[:, None].to(product.dtype, copy=True), row_lengths(starts))

    def _store_block(self) -> None:
        self.num_vectors += ~self.has_ended if self._some_ended else 1
        if self.estimate is not None:
            super()._store_block()
            return
        self.dimension += 1
        if self.room < 0:
            self._projected = torch.nn.functional.pad(self._projected, (0, self.capacity, 0, self.capacity))

    def _images(self) -> Tensor:
        if not self._some_ended:
            return super()._images()
        images = torch.zeros_like(self.block)
        images[~self.has_ended, 0] = self.product(self.block[~self.has_ended, 0].T).T
        return images

    def _remove_basis(self, rest: Tensor) -> Tensor:
        """The last two vectors alone: the coupling tells what to take of the one before."""
        taken = []
        if self._before is not None:
            taken.append(self.coupling[:, :, -1:])
            rest.addcmul_(taken[0].to(rest.dtype), self._before, value=-1)
        taken.append(inner_products(self.block[:, 0], rest[:, 0])[:, None, None])
        rest.addcmul_(taken[-1].to(rest.dtype), self.block, value=-1)
        self._before = self.block
        return torch.cat(taken, 1)

    def _make_block(self, rest: Tensor, width: int) -> Tensor:
        lengths = row_lengths(rest[:, 0])
        diagonal, beside = self.projection.diagonal(0, 1, 2), self.projection.diagonal(1, 1, 2)
        self.norms = torch.maximum(torch.maximum(self.norms, diagonal[:, -1].abs()), lengths)
        if self.estimate is not None:
            known = lengths, self.norms, diagonal, beside
            for space in self.estimate.spaces_to_clear(self.basis, rest[:, 0], *known):
                remove_basis(rest[space], self.basis[space])
                lengths[space] = row_lengths(rest[space, 0])
        return self._normalise(rest, lengths)

    def _normalise(self, rest: Tensor, lengths: Tensor) -> Tensor:
        """Make the next block of new vectors, in place; zero where a space has ended."""
        self.has_ended = lengths <= _NEGLIGIBLE * self.norms
        self._some_ended = bool(self.has_ended.any())
        if not self._some_ended:
            self.block = rest.div_(lengths[:, None, None].to(rest.dtype))
            return lengths[:, None, None]
        rest[self.has_ended] = 0.0
        kept = 0 if self.has_ended.all() else 1
        lengths_or_one = torch.where(self.has_ended, 1.0, lengths)[:, None, None].to(rest.dtype)
        self.block = rest.div_(lengths_or_one)[:, :kept]
        return torch.where(self.has_ended, 0.0, lengths)[:, None, None][:, :kept]


def spectral_norm(product: Product, size: int, tolerance: float = 1e-3) -> float:
    """||A|| as the largest Ritz value in magnitude.

    It ends when five more steps change it by less than the tolerance, or when the space has ended. Both ends of the
    spectrum converge at once, so a nearly symmetric one (+norm, -norm) is no obstacle; the copies of Ritz values that
    come without re-orthogonalisation do not move the largest.
    """
    start = torch.randn(1, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    process = ParallelLanczos(ScaledProduct(product, size), start, 32, "local")
    norm = 0.0
    while True:
        process.expand()
        is_last = process.width == 0 or process.dimension == size
        if process.dimension % 5 == 0 or is_last:
            before, norm = norm, float(torch.linalg.eigvalsh(process.projection).abs().max())
            if is_last or abs(norm - before) <= tolerance * norm:
                return process.product.scale * norm
