"""The block Lanczos iteration: expand, look, probe for what was missed, restart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from hessmap.measurement.krylov_basis import KrylovBasis, Product
from hessmap.measurement.wanted_pairs import WantedPairs

_PROBE_WIDTH, _PROBE_STEPS, _MIN_PROBE_STEPS = 4, 12, 6
_ENOUGH_PROBES = 3  # that ran out of room before they had an answer, and showed nothing


@dataclass(frozen=True)
class RitzPairs:
    """The wanted Ritz pairs of a basis: values and residuals in its unit, vectors in its coordinates."""

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    converged: bool
    num_probes: int
    num_restarts: int


@dataclass(frozen=True)
class Lanczos:
    """What an iteration is asked for and may use: ``width`` vectors a block, ``capacity`` of them held."""

    size: int
    wanted: WantedPairs
    width: int
    capacity: int
    max_products: int
    seed: int
    precision: torch.dtype = torch.float64  # of the vectors that are held

    def run(self, product: Product, start: Tensor | None) -> tuple[KrylovBasis, RitzPairs]:
        """From approximate eigenvectors (rows); random mixtures of them if they are more than a block."""
        generator = torch.Generator().manual_seed(self.seed)
        rows = torch.empty(0, self.size, dtype=torch.float64) if start is None else start
        if len(rows) > self.width:
            rows = torch.randn(self.width, len(rows), generator=generator, dtype=torch.float64) @ rows
        basis = KrylovBasis(product, self.size, num_held(self.size, self.capacity), generator, self.precision)
        basis.start(rows, self.width)
        return basis, self._iterated(basis)

    def _iterated(self, basis: KrylovBasis) -> RitzPairs:
        wanted = self.wanted
        total = wanted.total(self.size)
        num_probes = num_restarts = undecided = 0
        while True:
            if len(basis.block):
                basis.expand()
            while 0 < len(basis.block) <= total - basis.dimension and basis.num_products < self.max_products:
                basis.expand()  # too few vectors to hold what is wanted
            values, vectors, residuals = basis.ritz()
            chosen = wanted.chosen(values)
            complete = basis.dimension == basis.size or not len(basis.block)
            settled = len(chosen) == total
            settled = settled and bool(wanted.limits(values[chosen], residuals[chosen], basis.norm).all())
            state = RitzPairs(values[chosen], vectors[:, chosen], residuals[chosen], complete, num_probes, num_restarts)
            if complete or (settled and wanted.is_out_of_reach(state.values, basis.norm)):
                return state
            if settled:
                slack = max(10 * wanted.tolerance, 1e-12) * basis.norm
                probe_width = _PROBE_WIDTH if num_probes else min(_PROBE_WIDTH, max(2, self.width))
                probe = basis.probe(probe_width, _MIN_PROBE_STEPS, partial(wanted.is_clear, state.values, slack))
                num_probes += 1
                undecided += probe.verdict is None
                if probe.verdict or undecided == _ENOUGH_PROBES:
                    return replace(state, converged=True, num_probes=num_probes)
                basis.join(probe.coordinates[wanted.chosen(probe.values, extra=self.width)], self.width)
            if basis.num_products >= self.max_products:
                return state
            if basis.dimension + len(basis.block) > self.capacity:
                self._restart(basis, values, vectors, len(chosen))
                num_restarts += 1

    def _restart(self, basis: KrylovBasis, values: Tensor, vectors: Tensor, num_chosen: int) -> None:
        extra = max(self.width, (self.capacity - num_chosen) // 3)
        room = self.capacity - num_chosen - len(basis.block) - self.width
        kept = self.wanted.chosen(values, max(0, min(extra, room)))
        basis.restart(values[kept], vectors[:, kept])


def num_held(size: int, capacity: int) -> int:
    """Vectors that are held with those of a probe."""
    return min(size, capacity + _PROBE_WIDTH * _PROBE_STEPS)
