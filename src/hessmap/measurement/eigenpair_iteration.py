"""Which eigenpairs are asked for, and the block Lanczos iteration that finds them: expand, compare, probe, restart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from hessmap.curvature.lanczos import BlockLanczos, ScaledProduct

End = Literal["largest", "smallest", "both_ends", "magnitude"]
Reference = Literal["norm", "eigenvalue"]
ENDS: tuple[End, ...] = get_args(End)
LOOSE = 1e-4  # a tolerance far above what float32 leaves of orthogonality
_ROUNDING = 1e-14  # of the norm: no product is better
_PROBE_WIDTH, _PROBE_STEPS, _MIN_PROBE_STEPS = 4, 12, 6
_ENOUGH_PROBES = 3  # that ran out of room before they had an answer, and showed nothing
_PRESENT = 0.1  # how much of a new direction must be in the wanted Ritz vectors to count


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

    def margins(self, values: Tensor, known: Tensor) -> Tensor:
        """How far values stay behind the last of the wanted ones that are known."""
        if self.which == "largest":
            return known.min() - values
        if self.which == "smallest":
            return values - known.max()
        if self.which == "magnitude":
            return known.abs().min() - values.abs()
        ends = known.sort().values
        return torch.minimum(values - ends[self.count - 1], ends[-self.count] - values)

    def is_clear(self, known: Tensor, slack: float, values: Tensor, residuals: Tensor, share: Tensor) -> bool | None:
        """Whether a probe shows that nothing lies beyond the wanted values (``known``): True, False, or not yet.

        Something does if the wanted ones among all values are others than before. If not, the value nearest to them
        whose vector is new (``share``) must have settled, or be farther away than its residual.
        """
        if float((self._in_order(values[self.wanted_places(values)]) - self._in_order(known)).abs().max()) > slack:
            return False
        new = share > 0.5  # of a repeated value old and new vectors are mixed: the comparison above shows it
        if not new.any():
            return None
        margins = self.margins(values, known)[new]
        nearest = margins.argmin()
        margin, residual = float(margins[nearest]), float(residuals[new][nearest])
        return True if margin > residual or residual <= slack else None

    def _in_order(self, values: Tensor) -> Tensor:
        return (values.abs() if self.which == "magnitude" else values).sort().values


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


class _Probe(NamedTuple):
    """What a random block showed: True if nothing new, False if something, None if it ran out of room before; the Ritz
    values with it, and the coordinates of each Ritz vector (rows) along the new directions."""

    verdict: bool | None
    values: Tensor
    coordinates: Tensor
    directions: Tensor


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
        return self._iterated_pairs(process)

    def _iterated_pairs(self, process: BlockLanczos) -> RitzPairs:
        wanted, product = self.wanted, process.product
        total, spent = wanted.total(self.size), product.num_products
        num_probes = num_restarts = num_undecided = 0
        while True:
            if process.width:
                process.expand()
            while 0 < process.width <= total - process.dimension and product.num_products - spent < self.max_products:
                process.expand()  # too few vectors to hold what is wanted
            values, vectors, residuals = process.ritz()
            chosen, norm = wanted.wanted_places(values), process.norm
            is_complete = process.dimension == process.size or not process.width
            found = values[chosen], vectors[:, chosen], residuals[chosen]
            pairs = RitzPairs(process, *found, is_complete, num_probes, num_restarts)
            are_settled = len(chosen) == total and wanted.are_met(found[0], found[2], norm)
            if is_complete or (are_settled and wanted.are_out_of_reach(found[0], norm)):
                return pairs
            if are_settled:
                width = _PROBE_WIDTH if num_probes else min(_PROBE_WIDTH, max(2, self.width))
                probe = self._probe(process, found[0], width)
                num_probes += 1
                num_undecided += probe.verdict is None
                if probe.verdict or num_undecided == _ENOUGH_PROBES:
                    return replace(pairs, converged=True, num_probes=num_probes)
                self._join(process, probe, total)
            if product.num_products - spent >= self.max_products:
                return pairs
            if process.dimension + process.width > self.capacity:
                self._restart(process, values, vectors, len(chosen))
                num_restarts += 1

    def _probe(self, process: BlockLanczos, known: Tensor, width: int) -> _Probe:
        """Let a random block and its images join the basis, step by step, until they show whether a value was missed.

        A random direction holds little of a missed eigenvector, so some steps are made before the first look. The
        process stays as it was; what the probe added to its basis is of no further use but to ``_join``.
        """
        before, slack = process.state, max(10 * self.wanted.tolerance, 1e-12) * process.norm
        old = before.dimension
        process.start(before.block[:0], min(width, process.room))
        verdict, num_steps = None, 0
        values, vectors, residuals = process.ritz()
        while verdict is None and 0 < process.width <= process.room:
            process.expand()
            num_steps += 1
            values, vectors, residuals = process.ritz()
            is_last = not 0 < process.width <= process.room
            if num_steps >= _MIN_PROBE_STEPS or is_last:
                verdict = self.wanted.is_clear(known, slack, values, residuals, vectors[old:].square().sum(0))
        new_directions = process.basis[old:]
        process.state = before
        return _Probe(verdict, values, vectors[old:].T, new_directions)

    def _join(self, process: BlockLanczos, probe: _Probe, total: int) -> None:
        """Add the main directions among what a probe found to the next block, as many as a restart leaves room for."""
        coordinates = probe.coordinates[self.wanted.wanted_places(probe.values, extra=self.width)]
        _, sizes, directions = torch.linalg.svd(coordinates, full_matrices=False)
        found = directions[sizes > _PRESENT][: self.width]
        most = process.capacity - total - process.width
        process.widen(found @ probe.directions.double(), most)

    def _restart(self, process: BlockLanczos, values: Tensor, vectors: Tensor, num_chosen: int) -> None:
        extra = max(self.width, (self.capacity - num_chosen) // 3)
        room = self.capacity - num_chosen - process.width - self.width
        kept = self.wanted.wanted_places(values, max(0, min(extra, room)))
        process.restrict(values[kept], vectors[:, kept])


def num_stored(size: int, capacity: int) -> int:
    """Vectors that are stored, with those of a probe."""
    return min(size, capacity + _PROBE_WIDTH * _PROBE_STEPS)
