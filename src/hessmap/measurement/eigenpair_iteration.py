"""The block Lanczos iteration that finds eigenpairs: expand, compare, probe for missed eigenvalues, restart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from hessmap.linalg import BlockLanczos, ScaledProduct
from hessmap.measurement.few_vectors import probe_without_storage
from hessmap.measurement.wanted_pairs import MISSED, WantedPairs, least_overlap, overlap_bound

NUM_STORED = 48  # vectors of a probe, at least
_COUPLED = 0.25  # of the slack: how far what is left of the basis may lift the values of a probe


class Probe(NamedTuple):
    """What a random vector showed: True if nothing lies beyond, False if something may, None if it ran out of room
    before; the Ritz values with it, and the coordinates of each Ritz vector (rows) along the new directions."""

    verdict: bool | None
    values: Tensor
    coordinates: Tensor
    directions: Tensor


def deflate(process: BlockLanczos, wanted: WantedPairs, values: Tensor, vectors: Tensor, residuals: Tensor) -> None:
    """Keep the wanted Ritz vectors, which come first, and others that hardly couple to what is beside the basis.

    A Ritz pair of value a and residual r lifts an eigenvalue near z, of the operator on the rest of the space, by
    r^2 / (z - a) at most: a Schur complement. All of them together stay below a part of the slack.
    """
    chosen = wanted.wanted_places(values)
    slack = wanted.slack(values[chosen], process.norm)
    is_other = torch.ones(len(values), dtype=torch.bool)
    is_other[chosen] = False
    others = is_other.nonzero()[:, 0]
    points = [point for point in wanted.bounds(values[chosen], slack) if point is not None]
    distances = torch.stack([(values[others] - point).abs() for point in points]).amin(0)
    lifts, order = (residuals[others].square() / distances).sort()
    kept = torch.cat([chosen, others[order[lifts.cumsum(0) <= _COUPLED * slack]]])
    process.restrict(values[kept], vectors[:, kept])


def probe(process: BlockLanczos, wanted: WantedPairs, known: Tensor, last_product: int) -> Probe:
    """Let a random vector and its images join the basis, one by one, until they show whether a value was missed.

    The process stays as it was; what the probe added to its basis is of no further use but to be joined to it.
    """
    before, slack = process.state, wanted.slack(known, process.norm)
    old, points = before.dimension, wanted.bounds(known, (1 - _COUPLED) * slack)
    spare, process.product.spare = process.product.spare, None
    if spare is not None and 2 * old < process.size:
        process.start_with_image(*spare)
    else:
        process.start(before.block[:0], 1)
    verdict = None
    while verdict is None and 0 < process.width <= process.room and process.product.num_products < last_product:
        process.expand()
        if wanted.have_changed(known, torch.linalg.eigvalsh(process.projection), slack):
            verdict = False
        elif process.dimension == process.size:
            verdict = True
        else:
            verdict = _is_clear(process, old, points)
    values, vectors, _ = process.ritz()
    directions = process.basis[old:]
    process.state = before
    return Probe(verdict, values, vectors[old:].T, directions)


def _is_clear(process: BlockLanczos, old: int, points: tuple[float | None, float | None]) -> bool | None:
    """Whether no eigenvalue beside the first ``old`` vectors lies outside of the points: True, False, or not yet."""
    low, high = points
    projection, num_dimensions = process.projection[old:, old:], process.size - old
    own = torch.linalg.eigvalsh(projection)
    if (high is not None and float(own[-1]) > high) or (low is not None and float(own[0]) < low):
        return False
    if num_dimensions < 3:
        return None
    beside = torch.cat([projection.diagonal(-1), process.coupling[:, -1:].norm(dim=0)])
    limit = least_overlap(num_dimensions, MISSED)
    bounds = [overlap_bound(projection.diagonal(), beside, point) for point in points if point is not None]
    return True if max(bounds) < limit else None


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
        """``count`` columns of random signs, one row for every pair."""
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
    num_probe_vectors: int = NUM_STORED  # that are stored for the test of missed eigenvalues; 0: it stores none
    together: int | None = None  # vectors that the final checks multiply at once; None: all
    home: torch.device | None = None  # of the stored vectors; None: that of the product

    @property
    def is_semi(self) -> bool:
        """Whether half of the digits of float32 are enough orthogonality."""
        return self.precision == torch.float32 and self.wanted.tolerance >= LOOSE

    def run(self, product: ScaledProduct, start: Tensor | None) -> RitzPairs:
        """From approximate eigenvectors (rows); random mixtures of them if they are more than a block."""
        generator = torch.Generator().manual_seed(self.seed)
        rows = torch.empty(0, self.size, dtype=torch.float64) if start is None else start
        if len(rows) > self.width:
            rows = torch.randn(self.width, len(rows), generator=generator, dtype=torch.float64).to(rows) @ rows
        stored = num_stored(self.size, self.capacity, self.num_probe_vectors)
        process = BlockLanczos(product, stored, generator, self.precision, self.is_semi, self.home)
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
                num_probes += 1
                inside = torch.eye(process.dimension, total, dtype=torch.float64)
                is_clear, join = self._probed(process, found[0], total, last)
                pairs = replace(pairs, coordinates=inside, converged=is_clear, num_probes=num_probes)
                if pairs.converged:
                    return pairs
                join()
            if product.num_products >= last:
                return pairs
            if process.dimension + process.width > self.capacity:
                self._restart(process, len(chosen))
                num_restarts += 1

    def _probed(self, process: BlockLanczos, known: Tensor, total: int, last: int) -> tuple[bool, Callable[[], None]]:
        """Whether a probe excludes a missed eigenvalue, and what lets its findings join the next block."""
        if self.num_probe_vectors:
            shown = probe(process, self.wanted, known, last)
            if shown.verdict is not None or process.product.num_products >= last:
                return bool(shown.verdict), lambda: self._join(process, shown, total)
        slack = self.wanted.slack(known, process.norm)
        points = self.wanted.bounds(known, (1 - _COUPLED) * slack)
        assert process.generator is not None
        verdict, direction = probe_without_storage(process.product, process.basis, points, process.generator, last)
        most = process.capacity - total - process.width
        rows = process.block[:0] if direction is None else direction
        return bool(verdict), lambda: process.widen(rows, most)

    def _join(self, process: BlockLanczos, shown: Probe, total: int) -> None:
        """Add the main directions among what a probe found to the next block, as many as a restart leaves room for."""
        coordinates = shown.coordinates[self.wanted.wanted_places(shown.values, extra=self.width)]
        _, sizes, directions = torch.linalg.svd(coordinates, full_matrices=False)
        found = directions[sizes > _PRESENT][: self.width]
        most = process.capacity - total - process.width
        process.widen(found.to(shown.directions.device) @ shown.directions.double(), most)

    def _restart(self, process: BlockLanczos, num_chosen: int) -> None:
        values, vectors, _ = process.ritz()
        extra = max(self.width, (self.capacity - num_chosen) // 3)
        room = self.capacity - num_chosen - process.width - self.width
        kept = self.wanted.wanted_places(values, max(0, min(extra, room)))
        process.restrict(values[kept], vectors[:, kept])


def num_stored(size: int, capacity: int, num_probe_vectors: int = NUM_STORED) -> int:
    """Return the number of vectors that are stored, with those of a probe.

    Args:
        size: Entries of a vector.
        capacity: Vectors of the basis before a restart.
        num_probe_vectors: Further vectors of a probe. Defaults to ``NUM_STORED``.

    Returns:
        At most ``size``.
    """
    return min(size, capacity + num_probe_vectors)
