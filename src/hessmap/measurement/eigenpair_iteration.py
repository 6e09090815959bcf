"""Which eigenpairs are asked for, when one counts as found, and what may not lie beyond them.

Whether an eigenvalue beyond those that were found has been missed: a random vector and its images tell.

Let u be a unit eigenvector, of value z, of an operator on m dimensions, and q a random unit vector. The orthonormal
polynomials p_0, .., p_j of q, which j steps of Lanczos make known, have u . p_i(A) q = p_i(z) (u . q), and the vectors
p_i(A) q are orthonormal, so that

    (u . q)^2 (p_0(z)^2 + .. + p_j(z)^2) <= 1.

Outside of all Ritz values the sum grows: what it is at a point holds for every z beyond. So either no eigenvalue lies
beyond the point, or u . q is below a number that the process tells, and for a random q that is as improbable as the
number is small (van Dorsselaer, Hochstenbach & van der Vorst 2000, "Computing probabilistic bounds for extreme
eigenvalues of symmetric matrices with the Lanczos method").

The block Lanczos iteration that finds eigenpairs: expand, compare, probe, restart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, lgamma, pi
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from hessmap.linalg import BlockLanczos, ScaledProduct

End = Literal["largest", "smallest", "both_ends", "magnitude"]
Reference = Literal["norm", "eigenvalue"]
ENDS: tuple[End, ...] = get_args(End)
_ROUNDING = 1e-14  # of the norm: no product is better
_LEAST_SLACK = 1e-12  # of the norm: values closer to each other are copies


@dataclass(frozen=True)
class WantedPairs:
    """Which eigenpairs are asked for, and when one of them counts as found.

    ``floor`` is the smallest residual, of the norm, that products in float32 can be asked for; None in float64.
    """

    which: End
    count: int
    tolerance: float
    relative_to: Reference
    floor: float | None = None

    def total(self, size: int) -> int:
        return min(size, 2 * self.count if self.which == "both_ends" else self.count)

    def wanted_places(self, values: Tensor, extra: int = 0) -> Tensor:
        """Places of the wanted Ritz values (ascending order given), the best ones last."""
        last = len(values)
        if self.which == "largest":
            return torch.arange(max(0, last - self.count - extra), last)
        if self.which == "smallest":
            return torch.arange(min(last, self.count + extra)).flip(0)
        if self.which == "magnitude":
            return values.abs().argsort(stable=True)[max(0, last - self.count - extra) :]
        low = min(last // 2, self.count + extra // 2)
        high = max(low, last - self.count - extra // 2)
        return torch.cat([torch.arange(low), torch.arange(high, last)])

    def are_met(self, values: Tensor, residuals: Tensor, norm: float) -> bool:
        """Whether the residuals of all these values are small enough."""
        allowed = torch.clamp(self._allowed_residuals(values, norm), min=(self.floor or _ROUNDING) * norm)
        return bool((residuals <= allowed).all())

    def are_out_of_reach(self, values: Tensor, norm: float) -> bool:
        """Whether one of them asks for more than products in float32 can give."""
        return self.floor is not None and bool((self._allowed_residuals(values, norm) < self.floor * norm).any())

    def _allowed_residuals(self, values: Tensor, norm: float) -> Tensor:
        reference = values.abs() if self.relative_to == "eigenvalue" else torch.full_like(values, norm)
        return self.tolerance * reference

    def slack(self, known: Tensor, norm: float) -> float:
        """How far an eigenvalue may lie beyond the last wanted one without counting as missed."""
        return max(float(self._allowed_residuals(known, norm).min()), _LEAST_SLACK * norm)

    def bounds(self, known: Tensor, slack: float) -> tuple[float | None, float | None]:
        """Below and above which numbers no eigenvalue may lie that is not among the known ones; None: there is none."""
        if self.which == "largest":
            return None, float(known.min()) + slack
        if self.which == "smallest":
            return float(known.max()) - slack, None
        if self.which == "magnitude":
            least = float(known.abs().min()) + slack
            return -least, least
        ends = known.sort().values
        return float(ends[self.count - 1]) - slack, float(ends[-self.count]) + slack

    def have_changed(self, known: Tensor, values: Tensor, slack: float) -> bool:
        """Whether the wanted ones among these values are others than those that were known."""
        found = values[self.wanted_places(values)]
        return float((self._in_order(found) - self._in_order(known)).abs().max()) > slack

    def _in_order(self, values: Tensor) -> Tensor:
        return (values.abs() if self.which == "magnitude" else values).sort().values


NUM_STORED = 48  # vectors of a probe, at least
_BLIND = 1e-3  # the probability that a probe shows nothing although there is something, at most
_BEYOND_DOUBT = 1e200
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
    limit = least_overlap(num_dimensions, _BLIND)
    bounds = [overlap_bound(projection.diagonal(), beside, point) for point in points if point is not None]
    return True if max(bounds) < limit else None


def least_overlap(num_dimensions: int, probability: float) -> float:
    """What a coordinate of a random unit vector stays below, in magnitude, with at most this probability.

    >>> round(least_overlap(3, 0.5), 12)  # uniform between -1 and 1
    0.5
    """
    half = num_dimensions / 2
    return float(probability * pi**0.5 / 2 * exp(lgamma(half - 0.5) - lgamma(half)))


def overlap_bound(diagonal: Tensor, beside: Tensor, point: float) -> float:
    """What |u . q| cannot exceed for an eigenvalue at the point or beyond; 0 where the space of q has ended.

    The coefficients a and b of Lanczos, the last b that of the next vector; the point is outside of the Ritz values.
    """
    before, now, total, coupling = 0.0, 1.0, 1.0, 0.0
    for a, b in zip(diagonal.tolist(), beside.tolist(), strict=True):
        if not b or total > _BEYOND_DOUBT:
            return 0.0
        before, now, coupling = now, ((point - a) * now - coupling * before) / b, b
        total += now * now
    return float(total**-0.5)


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
            rows = torch.randn(self.width, len(rows), generator=generator, dtype=torch.float64).to(rows) @ rows
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
        process.widen(found.to(shown.directions.device) @ shown.directions.double(), most)

    def _restart(self, process: BlockLanczos, num_chosen: int) -> None:
        values, vectors, _ = process.ritz()
        extra = max(self.width, (self.capacity - num_chosen) // 3)
        room = self.capacity - num_chosen - process.width - self.width
        kept = self.wanted.wanted_places(values, max(0, min(extra, room)))
        process.restrict(values[kept], vectors[:, kept])


def num_stored(size: int, capacity: int) -> int:
    """Vectors that are stored, with those of a probe."""
    return min(size, capacity + NUM_STORED)
