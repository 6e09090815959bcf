"""The block Lanczos iteration that finds eigenpairs: expand, compare, probe, restart."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hessmap.curvature.lanczos import BlockLanczos, ScaledProduct
from hessmap.measurement.missed_eigenvalues import NUM_STORED, Probe, deflate, probe
from hessmap.measurement.wanted_eigenpairs import WantedPairs

LOOSE = 1e-4  # a tolerance far above what float32 leaves of orthogonality
SHARE = 0.8  # of the tolerance for the iteration where it is in float32, the rest for what that adds to the residuals
_PRESENT = 0.1  # how much of a new direction must be in the wanted Ritz vectors to count


@dataclass(frozen=True)
class RitzPairs:
    """The wanted Ritz pairs of a process: values and residuals in the unit of its product, coordinates (columns) in
    its basis."""

    process: BlockLanczos
    values: Tensor
    coordinates: Tensor
    residuals: Tensor
    converged: bool
    num_probes: int
    num_restarts: int

    @property
    def norm(self) -> float:
        return self.process.norm

    def vectors(self, mixture: Tensor | None = None) -> Tensor:
        """The Ritz vectors, or their combinations by the columns of a mixture, as columns."""
        coordinates = self.coordinates if mixture is None else self.coordinates @ mixture
        return self.process.combine(coordinates)

    def random_signs(self, count: int) -> Tensor:
        """One for every pair, in so many columns."""
        assert self.process.generator is not None
        shape = len(self.values), count
        return torch.randint(0, 2, shape, generator=self.process.generator).double() * 2 - 1


@dataclass(frozen=True)
class EigenpairIteration:
    """What an iteration is asked for and may use: ``width`` vectors a block, ``capacity`` of them stored."""

    size: int
    wanted: WantedPairs
    width: int
    capacity: int
    max_products: int
    seed: int
    precision: torch.dtype = torch.float64  # of the vectors that are stored

    @property
    def is_semi(self) -> bool:
        """Whether half of the digits of float32 are enough orthogonality."""
        return self.precision == torch.float32 and self.wanted.tolerance >= LOOSE

    def run(self, product: ScaledProduct, start: Tensor | None) -> RitzPairs:
        """From approximate eigenvectors (rows); random mixtures of them if they are more than a block."""
        generator = torch.Generator().manual_seed(self.seed)
        rows = torch.empty(0, self.size, dtype=torch.float64) if start is None else start
        if len(rows) > self.width:
            rows = torch.randn(self.width, len(rows), generator=generator, dtype=torch.float64) @ rows
        stored = num_stored(self.size, self.capacity)
        process = BlockLanczos(product, stored, generator, self.precision, self.is_semi)
        process.start(rows, self.width)
        share = 1.0 if self.precision == torch.float64 else SHARE
        stricter = replace(self.wanted, tolerance=share * self.wanted.tolerance)
        return replace(self, wanted=stricter)._iterated_pairs(process)

    def _iterated_pairs(self, process: BlockLanczos) -> RitzPairs:
        wanted, product = self.wanted, process.product
        total, last = wanted.total(self.size), product.num_products + self.max_products
        num_probes = num_restarts = 0
        while True:
            if process.width:
                process.expand()
            while 0 < process.width <= total - process.dimension and product.num_products < last:
                process.expand()  # too few vectors to hold what is wanted
            values, vectors, residuals = process.ritz()
            chosen, norm = wanted.wanted_places(values), process.norm
            is_complete = process.dimension == process.size or not process.width
            found = values[chosen], vectors[:, chosen], residuals[chosen]
            pairs = RitzPairs(process, *found, is_complete, num_probes, num_restarts)
            are_settled = len(chosen) == total and wanted.are_met(found[0], found[2], norm)
            if is_complete or (are_settled and wanted.are_out_of_reach(found[0], norm)):
                return pairs
            if are_settled and product.num_products < last:
                deflate(process, wanted, values, vectors, residuals)
                shown = probe(process, wanted, found[0], last)
                num_probes += 1
                inside = torch.eye(process.dimension, total, dtype=torch.float64)
                pairs = replace(pairs, coordinates=inside, converged=bool(shown.verdict), num_probes=num_probes)
                if pairs.converged:
                    return pairs
                self._join(process, shown, total)
            if product.num_products >= last:
                return pairs
            if process.dimension + process.width > self.capacity:
                self._restart(process, len(chosen))
                num_restarts += 1

    def _join(self, process: BlockLanczos, shown: Probe, total: int) -> None:
        """Add the main directions among what a probe found to the next block, as many as a restart leaves room for."""
        coordinates = shown.coordinates[self.wanted.wanted_places(shown.values, extra=self.width)]
        _, sizes, directions = torch.linalg.svd(coordinates, full_matrices=False)
        found = directions[sizes > _PRESENT][: self.width]
        most = process.capacity - total - process.width
        process.widen(found @ shown.directions.double(), most)

    def _restart(self, process: BlockLanczos, num_chosen: int) -> None:
        values, vectors, _ = process.ritz()
        extra = max(self.width, (self.capacity - num_chosen) // 3)
        room = self.capacity - num_chosen - process.width - self.width
        kept = self.wanted.wanted_places(values, max(0, min(extra, room)))
        process.restrict(values[kept], vectors[:, kept])


def num_stored(size: int, capacity: int) -> int:
    """Vectors that are stored, with those of a probe."""
    return min(size, capacity + NUM_STORED)
