"""The block Lanczos iteration that finds eigenpairs: expand, compare, probe for missed eigenvalues, restart.

In mixed precision pairs are found by products in float32 and verified by products in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hessmap.errors import InvalidInput
from hessmap.linalg import BlockLanczos, LinearOperator, ScaledProduct, normal_vectors, to_host
from hessmap.measurement.few_vectors import probe_without_storage
from hessmap.measurement.operators_in import FLOAT32_TOLERANCE, Matrix, is_iterated_in_single, is_low_precision
from hessmap.measurement.probes import ProbedOperator
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


_FLOOR = 1e-6  # of the norm: the rounding of a product in float32
_MOST_APART = 1e-4  # of a product: where both formats differ by more, they are not those of one operator
_SQUARE = 1e-3  # a tolerance whose square, the error of values in float64, is no less than what float32 adds to them
_NUM_MIXTURES = 2
# benchmarks/peers/rows.py times eigenvalues in float64 and in mixed precision.
_LARGE = 10_000  # the size from which on products in float32 were found to take half the time

Precision = Literal["auto", "single", "mixed", "float64"]
PROBE_PRECISIONS = ("auto", "float64")  # of estimates from random probes


@dataclass(frozen=True)
class Attempt:
    """What products in float32 led to: pairs with residuals in float64, which are a result if ``is_final``, or a start
    for the iteration in float64, or nothing. ``check`` is the norm of a random combination of their residuals."""

    num_single_products: int = 0
    pairs: RitzPairs | None = None
    check: float = 0.0
    is_final: bool = False

    @property
    def start(self) -> Tensor | None:
        """Approximate eigenvectors, one a row."""
        return None if self.pairs is None else self.pairs.vectors().T


def chosen_precision(precision: Precision, matrix: Matrix, plan: EigenpairIteration) -> Precision:
    """float64 where float32 cannot meet the tolerance, or by default where it saves too little."""
    tolerance, total = plan.wanted.tolerance, plan.wanted.total(plan.size)
    if is_low_precision(matrix) or tolerance < FLOAT32_TOLERANCE:
        return "float64"
    if precision != "auto":
        return precision
    least = 1 if is_iterated_in_single(matrix) else _LARGE
    if plan.size < max(least, 4 * total):
        return "float64"
    return "single" if tolerance >= _SQUARE else "mixed"


def attempt(
    matrix: Matrix, double: ScaledProduct, plan: EigenpairIteration, start: Tensor | None, precision: Precision
) -> Attempt:
    """Iterate in float32 and verify the pairs in float64: "mixed" by a product with each of them, "single" by products
    with random mixtures.

    A first product with a random vector, in both formats, shows whether they are of one operator: a unit that float32
    switches the other way or a number that it has no room for could hide an eigenvalue from the iteration.
    """
    narrow = matrix.in_single_precision() if isinstance(matrix, LinearOperator) and precision != "float64" else None
    if narrow is None:
        return Attempt()
    single = ScaledProduct(narrow.matmat, plan.size)
    single.place_on(double.device)
    verify, to_come = _one_by_one, plan.wanted.total(plan.size)
    if precision == "single":
        verify, to_come = with_rounding, _NUM_MIXTURES
    rough = replace(plan.wanted, tolerance=SHARE * plan.wanted.tolerance, floor=_FLOOR)
    vector, expected = _random_product(double, plan.seed)
    allowed = max(1, plan.max_products - double.num_products - to_come - 1)
    try:
        found = single(vector)
        if not _agree(double.scale * expected, single.scale * found, plan.wanted.tolerance):
            return Attempt(single.num_products)
        pairs = replace(plan, wanted=rough, max_products=allowed).run(single, start)
    except InvalidInput:  # products that are not finite
        return Attempt(single.num_products)
    if rough.are_out_of_reach(pairs.values, pairs.norm):
        return Attempt(single.num_products, pairs)
    verified, check = verify(pairs, double)
    is_met = plan.wanted.are_met(verified.values, verified.residuals, verified.norm)
    verified = replace(verified, converged=pairs.converged and is_met)
    spent = double.num_products + single.num_products
    return Attempt(single.num_products, verified, check, verified.converged or spent >= plan.max_products)


def verified_single(matrix: LinearOperator, seed: int, tolerance: float = _MOST_APART) -> LinearOperator | None:
    """The operator in float32, if it has one whose product with a random vector agrees with that in float64.

    Args:
        matrix: Operator in float64.
        seed: Seed of the vector.
        tolerance: How far the products may differ, relative to their size. Defaults to 1e-4.

    Returns:
        The operator in float32, or None.
    """
    narrow = matrix.in_single_precision()
    if narrow is None:
        return None
    generator = torch.Generator().manual_seed(seed)
    vector = normal_vectors((matrix.shape[1], 1), generator, matrix.dtype, matrix.device)
    expected, found = matrix.matmat(vector), narrow.matmat(vector).to(matrix.dtype)
    return narrow if _are_close(expected, found, tolerance) else None


def in_verified_single(operator: ProbedOperator, precision: str) -> ProbedOperator:
    """The same probes of the operator in float32 where "auto" means that, with a note; else the operator itself.

    Args:
        operator: Operator and probes.
        precision: "auto" or "float64".

    Returns:
        Probes of the operator in float32, or of the given one.
    """
    if precision == "float64" or not is_iterated_in_single(operator.matrix):
        return operator
    assert isinstance(operator.matrix, LinearOperator)
    narrow = verified_single(operator.matrix, operator.seed)
    if narrow is None:
        return operator
    found = ProbedOperator(narrow, operator.seed)
    found.product.num_products = operator.num_products + 2
    found.notes = (*operator.notes, "products are in float32; a random one agrees with float64 to 1e-4")
    return found


def _random_product(product: ScaledProduct, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    vector = normal_vectors((product.size, 1), generator, product.dtype, product.device)
    return vector, product(vector)


def _agree(expected: Tensor, found: Tensor, tolerance: float) -> bool:
    """Whether one random vector has the same product in both formats, to the tolerance.

    A part of A that float32 lacks, of rank one and size e, shows as e / sqrt(size), and A itself as its Frobenius norm
    / sqrt(size): in a ratio of the two, parts of the tolerance show in any dimension.
    """
    return _are_close(expected, found, min(tolerance, _MOST_APART))


def _are_close(expected: Tensor, found: Tensor, tolerance: float) -> bool:
    largest = float(expected.abs().max()) or 1.0  # squares of tiny entries would vanish
    apart, whole = float(((found - expected) / largest).norm()), float((expected / largest).norm())
    return apart <= tolerance * whole  # False for NaN


def _images(pairs: RitzPairs, double: ScaledProduct, mixture: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The Ritz vectors, or their combinations, and the products in float64 with them, in the unit of the iteration."""
    vectors = pairs.vectors(mixture)
    images = double(vectors)
    return vectors, images * (double.scale / pairs.process.product.scale)


def _one_by_one(pairs: RitzPairs, double: ScaledProduct) -> tuple[RitzPairs, float]:
    """Rayleigh and Ritz in the space of the vectors, whose values are right to the square of the residuals, and true
    residuals; beside them a random combination of these.

    Copies of an eigenvalue may be rotated at will, and some rotations gather their residuals in one of them: then the
    vectors stay as they were.
    """
    vectors, images = _images(pairs, double)
    inside = to_host(vectors.T @ images)
    values, rotation = torch.linalg.eigh((inside + inside.T) / 2)
    misfits = images @ rotation.to(images) - vectors @ (rotation * values).to(vectors)
    if len(values):
        pairs.process.norm = max(pairs.norm, float(values.abs().max()))
        order = inside.diagonal().argsort()
        places = order.to(images.device)
        unrotated = images[:, places] - vectors[:, places] * values.to(vectors)
        if float(unrotated.norm(dim=0).max()) < float(misfits.norm(dim=0).max()):
            rotation, misfits = torch.eye(len(order), dtype=rotation.dtype)[:, order], unrotated
    coordinates = pairs.coordinates @ rotation
    found = replace(pairs, values=values, coordinates=coordinates, residuals=to_host(misfits.norm(dim=0)))
    return found, float((misfits @ pairs.random_signs(1).to(misfits)).norm())


def with_rounding(pairs: RitzPairs, double: ScaledProduct) -> tuple[RitzPairs, float]:
    """The pairs as they are, with the rounding of their products added to their residuals; beside them the norm of a
    random combination of these.

    With A = S + E, S what the iteration made of the operator and S V = V L + R that the recurrence knows,
    E V c = A V c - V L c - R c for random signs c: its square is about the sum of the ||E v||^2. Rounding goes with the
    size of a product, so each pair gets of it in proportion to its eigenvalue.
    """
    signs = pairs.random_signs(_NUM_MIXTURES)
    images = _images(pairs, double, signs)[1]
    misfits = pairs.vectors(pairs.values[:, None] * signs).neg_().add_(images)  # in place: vectors are long
    del images
    check = float(misfits[:, 0].norm())
    process = pairs.process
    coefficients = process.coupling @ (pairs.coordinates @ signs)
    misfits -= process.block.T @ coefficients.to(process.block)
    rounding = float(misfits.norm(dim=0).max())
    sizes = pairs.values.abs()
    shares = sizes / sizes.norm() if float(sizes.max()) > 0 else torch.ones_like(sizes)
    return replace(pairs, residuals=pairs.residuals + rounding * shares), check
