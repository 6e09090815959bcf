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
from hessmap.linalg import BlockLanczos, LinearOperator, ScaledProduct, inner_matrix, normal_vectors, to_host
from hessmap.measurement.few_vectors import probe_without_storage
from hessmap.measurement.operators_in import FLOAT32_TOLERANCE, Matrix, is_iterated_in_single, is_low_precision
from hessmap.measurement.probes import ProbedOperator
from hessmap.measurement.wanted_pairs import Points, Selection, least_overlap, missed_probability, overlap_bound

NUM_STORED = 48  # vectors of a probe, at least
_MAX_COUPLING = 0.25  # of the slack: how far Ritz pairs that are kept for two ends may move the values of a probe


class Beside(NamedTuple):
    """The operator beside a basis: its compression plus ``addition`` = (rows, matrix), rows^T matrix rows. It has no
    eigenvalue outside of ``points`` unless the operator has more of them there than the basis shows."""

    points: Points
    addition: tuple[Tensor, Tensor] | None


def beside_basis(
    process: BlockLanczos, wanted: Selection, values: Tensor, vectors: Tensor, residuals: Tensor
) -> tuple[Beside, Tensor] | None:
    """What to examine for missed eigenvalues, and the coordinates of the wanted Ritz vectors in the basis then; None
    where their residuals are not yet small enough.

    Let A Q = Q T + B C, with Ritz values a_i and c_i = C y_i, and P A P be the operator beside Q. By Haynsworth's
    inertia formula A has as many eigenvalues above a point z as T and the Schur complement

        S = P A P + B M B^T,    M = sum over i of c_i c_i^T / (z - a_i)

    together. Without the terms of a_i > z, which are negative, S is larger and tends to no infinity: where it has no
    eigenvalue above z, A has there as many as T, all of them found. So all of the basis is deflated, converged or not,
    and S costs no product beyond those of A. For the lower end all signs are opposite.

    Two ends have two Schur complements. There the basis is restricted to the wanted Ritz vectors and to others that
    hardly couple to what is beside it, and the points move by the norm of M, at most the sum of |c_i|^2 / |z - a_i|.
    """
    places = wanted.wanted_places(values)
    slack = wanted.margin(values[places], process.norm)
    low, high = points = wanted.bounds(values[places], slack)
    if low is None or high is None:
        point = high if low is None else low
        assert point is not None
        is_inside = values < point if low is None else values > point
        coupled = (process.coupling @ vectors)[:, is_inside]
        addition = process.block, (coupled / (point - values[is_inside])) @ coupled.T
        return Beside(points, addition), vectors[:, places]
    is_other = torch.ones(len(values), dtype=torch.bool)
    is_other[places] = False
    moves = torch.stack([residuals.square() / (values - point).abs() for point in (low, high)]).amax(0)
    is_moving = (values > low) & (values < high)
    moved = float(moves[~is_other & is_moving].sum())
    if moved > _MAX_COUPLING * slack:
        return None
    others = is_other.nonzero()[:, 0]
    others = others[moves[others].argsort()]
    others = others[moves[others].cumsum(0) <= _MAX_COUPLING * slack]
    moved += float(moves[others].sum())
    kept = torch.cat([places, others])
    process.restrict(values[kept], vectors[:, kept])
    inside = torch.eye(process.dimension, len(places), dtype=torch.float64)
    return Beside((low + moved, high - moved), None), inside


def probe(
    process: BlockLanczos, wanted: Selection, known: Tensor, beside: Beside, probability: float, last_product: int
) -> bool | None:
    """Let a random vector and its images join the basis, one by one, until they show whether a value was missed.

    Returns:
        True if nothing lies beyond the points and the known values stay in the larger basis, False if something may or
        they do not, None if it ran out of room before.
    """
    block, old, spare, process.product.spare = process.block, process.dimension, process.product.spare, None
    if spare is not None and 2 * old < process.size:
        process.start_with_image(*spare)
    else:
        process.start(process.block[:0], 1)
    process.addition = beside.addition
    is_clear = None
    while is_clear is None and 0 < process.width <= process.room and process.product.num_products < last_product:
        process.expand()
        is_clear = _is_clear(process, old, beside.points, probability)
    process.addition = None
    if is_clear:
        projection = process.projection.clone()
        if beside.addition is not None:
            inside = inner_matrix(process.basis[old:], block.to(process.basis.device))
            projection[old:, old:] -= inside @ beside.addition[1] @ inside.T
        slack = wanted.margin(known, process.norm)
        is_clear = not wanted.have_changed(known, torch.linalg.eigvalsh(projection), slack)
    return is_clear


def _is_clear(process: BlockLanczos, old: int, points: Points, probability: float) -> bool | None:
    """Whether no eigenvalue beside the first ``old`` vectors lies outside of the points: True, False, or not yet."""
    low, high = points
    projection, num_dimensions = process.projection[old:, old:], process.size - old
    own = torch.linalg.eigvalsh(projection)
    if (high is not None and float(own[-1]) > high) or (low is not None and float(own[0]) < low):
        return False
    if process.dimension == process.size:
        return True
    if num_dimensions < 3:
        return None
    beside = torch.cat([projection.diagonal(-1), process.coupling[:, -1:].norm(dim=0)])
    limit = least_overlap(num_dimensions, probability)
    bounds = [overlap_bound(projection.diagonal(), beside, point) for point in points if point is not None]
    return True if max(bounds) < limit else None


LOOSE_TOLERANCE = 1e-4  # a tolerance far above what float32 leaves of orthogonality
TOLERANCE_SHARE = 0.8  # of the tolerance for an iteration in float32; the rest is for what that adds to the residuals


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
    wanted: Selection
    width: int
    capacity: int
    max_products: int
    seed: int
    precision: torch.dtype = torch.float64  # of the vectors that are stored
    num_probe_vectors: int = NUM_STORED  # that are stored for the test of missed eigenvalues; 0: it stores none
    together: int | None = None  # vectors that the final checks multiply at once; None: all
    home: torch.device | None = None  # of the stored vectors; None: that of the product

    @property
    def is_semi_orthogonal(self) -> bool:
        """Whether half of the digits of float32 are enough orthogonality."""
        return self.precision == torch.float32 and self.wanted.tolerance >= LOOSE_TOLERANCE

    def run(self, product: ScaledProduct, start: Tensor | None) -> RitzPairs:
        """From approximate eigenvectors (rows); random mixtures of them if they are more than a block."""
        generator = torch.Generator().manual_seed(self.seed)
        rows = torch.empty(0, self.size, dtype=torch.float64) if start is None else start
        if len(rows) > self.width:
            rows = torch.randn(self.width, len(rows), generator=generator, dtype=torch.float64).to(rows) @ rows
        stored = num_stored(self.size, self.capacity, self.num_probe_vectors)
        process = BlockLanczos(product, stored, generator, self.precision, self.is_semi_orthogonal, self.home)
        process.start(rows, self.width)
        share = 1.0 if self.precision == torch.float64 else TOLERANCE_SHARE
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
            are_settled = len(chosen) == total and wanted.are_converged(found[0], found[2], norm)
            if is_complete or (are_settled and wanted.are_out_of_reach(found[0], norm)):
                return pairs
            examined = None
            if are_settled and product.num_products < last:
                examined = beside_basis(process, wanted, values, vectors, residuals)
            if examined is not None:
                num_probes += 1
                beside, inside = examined
                is_clear, join = self._probed(process, found[0], beside, missed_probability(num_probes), last)
                pairs = replace(pairs, coordinates=inside, converged=is_clear, num_probes=num_probes)
                if not is_clear and product.num_products < last:
                    join()
            if pairs.converged or product.num_products >= last:
                return pairs
            if process.dimension + process.width > self.capacity:
                self._restart(process, len(chosen))
                num_restarts += 1

    def _probed(
        self, process: BlockLanczos, known: Tensor, beside: Beside, probability: float, last: int
    ) -> tuple[bool, Callable[[], None]]:
        """Whether a probe excludes a missed eigenvalue, and what lets its findings join the next block."""
        most = process.capacity - len(known) - process.width
        if self.num_probe_vectors:
            before = process.state
            is_clear = probe(process, self.wanted, known, beside, probability, last)
            after, process.state = process.state, before
            if is_clear is not None or process.product.num_products >= last:
                return bool(is_clear), lambda: process.join(after, beside.addition) if most > 0 else None
        assert process.generator is not None
        is_clear, direction = probe_without_storage(
            process.product, process.basis, *beside, process.generator, probability, last
        )
        rows = process.block[:0] if direction is None else direction
        return bool(is_clear), lambda: process.widen(rows, most)

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
    rough = replace(plan.wanted, tolerance=TOLERANCE_SHARE * plan.wanted.tolerance, floor=_FLOOR)
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
    is_met = plan.wanted.are_converged(verified.values, verified.residuals, verified.norm)
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
