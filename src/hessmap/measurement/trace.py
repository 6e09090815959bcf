"""Trace, Frobenius norm and traces of blocks: exact where the structure allows it, otherwise from random vectors.

Hutch++ computes the trace in the range of a sketch exactly and estimates the rest by random signs; Hutchinson's method
has no sketch.

Traces of diagonal blocks are estimated together: every product with a random vector serves all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, inf, sqrt
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from hessmap.errors import require, require_name
from hessmap.linalg import (
    Floats,
    ShardedOperator,
    frobenius_norm,
    has_float64,
    inner_matrix,
    summed_on_host,
    widest_dtype,
)
from hessmap.measurement.diagonal import diagonal_by_products, exact_diagonal, planned_probes, rounding_errors
from hessmap.measurement.eigenpair_iteration import PROBE_PRECISIONS, in_verified_single
from hessmap.measurement.eigenpair_plan import budget_of
from hessmap.measurement.operators_in import Matrix
from hessmap.measurement.probes import (
    BLOCK,
    CONFIDENCE,
    PIECE,
    SKETCH,
    ErrorTarget,
    ProbedOperator,
    ProbePlan,
    column_products,
    error_target,
    form_error,
    interval,
    orthonormal_range,
    standard_error,
)
from hessmap.measurement.sharded import sharded_trace
from hessmap.progress import set_progress_total, shown_work
from hessmap.records import EigenpairsMeasurement, SpectralEstimate


class Sketch(NamedTuple):
    """Orthonormal columns, the trace of the matrix in their space, and the Frobenius norm of their images."""

    basis: Tensor
    trace: float
    norm: float


class EntryMoments:
    """Of the vectors z * (B z), with B the matrix outside of a basis: their mean, and the sum of the variances of their
    entries. Blocks are joined by the rule of Chan, Golub & LeVeque (1983), which keeps the digits of a small spread."""

    def __init__(self, size: int, piece: int = PIECE) -> None:
        self.piece = piece  # numbers that are handled at a time
        self.mean, self.centred, self.count = torch.zeros(size), 0.0, 0

    def add(self, probes: Tensor, images: Tensor, basis: Tensor, inside: Tensor) -> None:
        """Those of another block: ``probes`` are without their part ``basis @ inside``, ``images`` still have one."""
        if not self.count:
            self.mean = self.mean.to(images)
        mirrored, wide = inner_matrix(basis.T, images.T).to(images), widest_dtype(images.device)
        centred = torch.zeros((), dtype=wide, device=images.device)  # read once a block
        added, joint = probes.shape[1], self.count + probes.shape[1]
        rows = max(1, self.piece // added)
        for start in range(0, len(probes), rows):
            part = slice(start, start + rows)
            entries = probes[part] + basis[part] @ inside
            entries *= images[part] - basis[part] @ mirrored
            mean = entries.mean(1)
            centred += entries.sub_(mean[:, None]).square_().sum(dtype=wide)
            apart = mean - self.mean[part]
            centred += apart.square().sum(dtype=wide) * (self.count * added / joint)
            self.mean[part] += apart * (added / joint)
        self.centred += float(centred)
        self.count = joint

    @property
    def variance(self) -> float:
        return self.centred / (self.count - 1) if self.count > 1 else inf

    @property
    def standard_error(self) -> float:
        """Of the mean of z^T B z, whose variance is twice that of the entries."""
        return sqrt(2 * self.variance / self.count)


class SignProbes:
    """Random signs without their part in a basis: z^T A z and ||A z||^2 of each, and the last images.

    For random signs z and a symmetric B the variance of z^T B z is 2 sum_{i != j} B_ij^2: twice the sum of the
    variances of the entries z_i (B z)_i, from which it is measured here. That is steadier than the spread of the few
    values z^T B z, which is small where no large value was drawn. There the mean is too small as well, and an interval
    from the spread covers less often than it says.
    """

    def __init__(self, operator: ProbedOperator, plan: ProbePlan, sketch: Sketch | None = None) -> None:
        self.operator, self.plan = operator, plan
        nothing = torch.zeros(operator.size, 0, dtype=operator.product.dtype, device=operator.product.device)
        self.sketch = sketch or Sketch(nothing, 0.0, 0.0)
        self.values, self.squares = np.zeros(0), np.zeros(0)
        self.images = self.sketch.basis[:, :0]
        self.entries = EntryMoments(operator.size, plan.piece)

    def more(self) -> SignProbes:
        """With another block of them, as many at a time as the plan has."""
        for start in range(0, BLOCK, self.plan.width):
            self._add(min(self.plan.width, BLOCK - start))
        return self

    def _add(self, count: int) -> None:
        self.images = self.sketch.basis[:, :0]  # those of the last block are not held beside the next
        basis, probes = self.sketch.basis, self.operator.signs(count)
        inside = inner_matrix(basis.T, probes.T).to(probes)
        if basis.shape[1]:
            probes.addmm_(basis, inside, alpha=-1)
        self.images = self.operator.product(probes)
        self.entries.add(probes, self.images, basis, inside)
        piece = self.plan.piece
        self.values = np.append(self.values, column_products(probes, self.images, piece))
        self.squares = np.append(self.squares, column_products(self.images, self.images, piece))

    def until(self, target: ErrorTarget, may_be_exact: bool) -> tuple[float, float, float]:
        """What is ``found`` by as many as the error asked for takes, or as there are products; or, if the trace
        ``may_be_exact``, until that is cheaper."""
        while not target.is_met(*self.found) and self.operator.num_products + BLOCK <= target.max_products:
            if may_be_exact and self.is_dense_cheaper(target):
                break
            self.more()
        return self.found

    def is_dense_cheaper(self, target: ErrorTarget) -> bool:
        """Whether a product a dimension takes no more than the probes that are missing."""
        missing = target.missing(len(self.values), *self.found)
        return self.operator.is_dense_cheaper(missing, target.max_products)

    @property
    def found(self) -> tuple[float, float, float]:
        """The trace, its standard error, and the Frobenius norm of the matrix, whose square is that of the images of
        the sketch and the mean of those of probes."""
        scale, sketch = self.operator.scale, self.sketch
        norm = hypot(sketch.norm, scale * float(self.squares.mean()) ** 0.5)
        return sketch.trace + scale * float(self.values.mean()), scale * self.entries.standard_error, norm

    def expected_number(self, target: ErrorTarget) -> float:
        """How many probes of this spread have the standard error that is asked for."""
        value, error, norm = self.found
        allowed = target.standard_error(value, norm)
        return len(self.values) * (error / allowed) ** 2 if allowed else inf


def range_sketch(
    operator: ProbedOperator, width: int, known: EigenpairsMeasurement | None, first: SignProbes | None = None
) -> Sketch:
    """By the images of random signs, some of which may be at hand from probes."""
    if known is not None:
        assert known.eigenvectors is not None
        values = known.eigenvalues[:width]
        basis = torch.from_numpy(known.eigenvectors[:, :width]).to(operator.product.dtype).to(operator.product.device)
        return Sketch(basis, float(values.sum()), frobenius_norm(values))
    ready = [] if first is None else [first.images]
    left = min(width, operator.size) - sum(images.shape[1] for images in ready)
    basis = orthonormal_range(torch.cat([*ready, operator.product(operator.signs(max(0, left)))], 1))
    images = operator.product(basis)
    trace, squares = (float(column_products(one, images).sum()) for one in (basis, images))
    return Sketch(basis, operator.scale * trace, operator.scale * squares**0.5)


_TOGETHER = 2**28  # bytes of vectors that are multiplied at once
_FEWEST = 4
_PIECE = 2**15  # entries that float32 adds up by itself


@dataclass(frozen=True, eq=False)
class BlockTraces:
    """The trace of every diagonal block with its standard error, and that of the whole matrix.

    Attributes:
        values: Traces, one per block.
        standard_errors: Standard errors of the traces over the probes; 0 where they are exact.
        whole: Estimate of the trace of the whole matrix.
    """

    values: Floats
    standard_errors: Floats
    whole: SpectralEstimate


@shown_work("traces of the blocks")
def block_traces(
    matrix: Matrix,
    block_of: Tensor,
    *,
    known: EigenpairsMeasurement | None = None,
    relative_error: float = 0.05,
    max_products: int = 64,
    memory_budget: float | None = None,
    seed: int = 0,
) -> BlockTraces:
    """Estimate the traces of all diagonal blocks of an operator from the same products.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator A.
        block_of: Index of the block of every row, from 0.
        known: Eigenpairs, converged or not, of any matrix near A: the probes then estimate the difference alone.
            Default: none.
        relative_error: Target for the standard error of the whole trace, relative to that trace, and for the norm of
            the standard errors of the blocks, relative to the norm of their traces. Defaults to 0.05.
        max_products: Most products. When they are used up, ``whole.reached`` is False if the whole trace misses the
            target. Defaults to 64.
        memory_budget: Bytes that may be held at once beside the operator. Fewer probes are multiplied at a time, and
            fewer ``known`` pairs used, as far as that needs. Default: the budget of the operator's problem.
        seed: Seed of the probes. Defaults to 0.

    Returns:
        BlockTraces: Trace and standard error of every block, and the estimate for the whole matrix.

    Raises:
        InvalidInput: If the operator is not square, symmetric, linear and finite, if ``block_of`` does not have one
            index for every row, if ``known`` has no eigenvectors of this size, or an argument is out of range.
        TooLarge: If one probe does not fit the budget.

    Notes:
        The trace of a block is the mean of the sum of z * (A z) over its rows, z random signs (Hutchinson 1990). With
        ``known`` vectors V and values L, A = V L V^T + (A - V L V^T): the first term is summed exactly and the probes
        estimate the second, which leaves the mean unchanged and removes the outliers from its error. Where one product
        per dimension takes no more than the probes, the traces are exact.

    Example:
        >>> found = block_traces(np.diag([3.0, 1.0, -2.0]), torch.tensor([0, 0, 1]))
        >>> found.values.round(12), round(found.whole.value, 12)
        (array([ 4., -2.]), 2.0)
    """
    target = error_target(relative_error, max_products)
    operator = ProbedOperator(matrix, seed)
    set_progress_total(max_products)
    must = f"every one of {operator.size} rows must belong to a block"
    require(block_of.shape == (operator.size,), must, f"block_of has shape {tuple(block_of.shape)}")
    num_blocks = int(block_of.max()) + 1 if operator.size else 0
    budget_of(matrix, memory_budget)  # an odd budget raises also where it is not needed
    width = max(1, min(16, _TOGETHER // (8 * max(1, operator.size))))
    if operator.size <= width:
        return _exact_traces(operator, block_of, num_blocks, target)
    num_known = 0 if known is None else len(known.eigenvalues)
    plan = planned_probes("traces of the blocks", matrix, operator, memory_budget, 0, num_known)
    width = min(width, plan.width)
    vectors, curvatures = _known_part(known, operator, plan.sketch)
    block_of = block_of.to(operator.product.device)
    inside = torch.zeros(num_blocks, dtype=torch.float64)
    for column, curvature in zip(vectors.T, curvatures.tolist(), strict=True):
        inside += curvature * _sums(column.square(), block_of, num_blocks)
    values, entries = np.zeros((0, num_blocks)), EntryMoments(operator.size, plan.piece)
    probes = images = vectors[:, :0]
    while True:
        del probes, images  # those of the last block are not held beside the next
        probes = operator.signs(width)
        images = operator.product(probes)
        weights = (curvatures / operator.scale)[:, None] * (vectors.T @ probes)
        images.addmm_(vectors, weights, alpha=-1)
        columns = range(width)
        found = torch.stack([_sums(probes[:, place] * images[:, place], block_of, num_blocks) for place in columns])
        values = np.concatenate([values, operator.scale * found.numpy()])
        means, errors = inside.numpy() + values.mean(0), np.array([standard_error(column) for column in values.T])
        entries.add(probes, images, vectors[:, :0], vectors.new_zeros(0, width))
        total, total_error = float(means.sum()), operator.scale * entries.standard_error
        are_met = target.is_met(total, total_error) and target.is_met(_norm(means), _norm(errors))
        is_enough = len(values) >= _FEWEST and are_met
        missing = max(
            target.missing(len(values), total, total_error), target.missing(len(values), _norm(means), _norm(errors))
        )
        if operator.is_dense_cheaper(missing, target.max_products):
            del probes, images
            return _exact_traces(operator, block_of, num_blocks, target, plan.num_columns)
        if is_enough or operator.num_products + width > max(2, target.max_products):
            break
    whole = SpectralEstimate(
        quantity="trace",
        value=total,
        standard_error=total_error,
        interval=interval(total, total_error, len(values)),
        confidence=CONFIDENCE,
        method_error=0.0,
        asked=target.standard_error(total),
        reached=target.is_met(total, total_error),
        num_probes=len(values),
        num_products=operator.num_products,
        method="hutchinson" if known is None else "hutch++",
        size=operator.size,
        seed=operator.seed,
        provenance=operator.provenance,
    )
    return BlockTraces(means, errors, whole)


def _exact_traces(
    operator: ProbedOperator, block_of: Tensor, num_blocks: int, target: ErrorTarget, together: int = BLOCK
) -> BlockTraces:
    """By one product a dimension."""
    means = _sums(diagonal_by_products(operator, together), block_of.cpu(), num_blocks).numpy()
    value = float(means.sum())
    whole = SpectralEstimate(
        quantity="trace",
        value=value,
        standard_error=0.0,
        interval=(value, value),
        confidence=CONFIDENCE,
        method_error=0.0,
        asked=target.standard_error(value),
        reached=True,
        num_probes=0,
        num_products=operator.num_products,
        method="exact",
        size=operator.size,
        seed=operator.seed,
        provenance=operator.provenance,
    )
    return BlockTraces(means, np.zeros(num_blocks), whole)


def _known_part(known: EigenpairsMeasurement | None, operator: ProbedOperator, most: int) -> tuple[Tensor, Tensor]:
    """The first eigenvectors and eigenvalues that are known, on the operator's device."""
    size, like = operator.size, torch.zeros(0, dtype=operator.product.dtype, device=operator.product.device)
    if known is None:
        return like.new_zeros(size, 0), like
    must = "known pairs must contain vectors of the size of the operator"
    require(known.eigenvectors is not None and known.size == size, must, f"size is {size}, theirs {known.size}")
    assert known.eigenvectors is not None
    return torch.from_numpy(known.eigenvectors[:, :most]).to(like), torch.from_numpy(known.eigenvalues[:most]).to(like)


def _sums(column: Tensor, block_of: Tensor, num_blocks: int) -> Tensor:
    """Of the entries of every block; pieces of them where the device has no float64, and then all pieces."""
    length = max(1, len(column)) if has_float64(column.device) else _PIECE
    parts = list(zip(torch.split(column, length), torch.split(block_of, length), strict=True))
    sums = torch.zeros(len(parts), num_blocks, dtype=widest_dtype(column.device), device=column.device)
    for row, (entries, places) in zip(sums, parts, strict=True):
        row.index_add_(0, places, entries.to(sums.dtype))
    return summed_on_host(sums, 0)


def _norm(values: Floats) -> float:
    return float(np.linalg.norm(values)) if np.isfinite(values).all() else inf


TraceMethod = Literal["auto", "hutchinson", "hutch++", "exact"]
NormMethod = Literal["auto", "hutch++", "exact"]


@shown_work("trace")
def trace_estimate(
    matrix: Matrix,
    *,
    relative_error: float = 0.01,
    absolute_error: float = 0.0,
    method: TraceMethod = "auto",
    max_products: int = 100,
    known: EigenpairsMeasurement | None = None,
    memory_budget: float | None = None,
    precision: Literal["auto", "float64"] = "auto",
    seed: int = 0,
) -> SpectralEstimate:
    """Estimate the trace of a symmetric operator, with its standard error.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator A.
        relative_error: Target for the standard error, relative to the trace or to ||A||_F, whichever is larger (a trace
            near zero is small beside the norm). Defaults to 0.01.
        absolute_error: Standard error that is sufficient in any case. Defaults to 0.0.
        method: "hutchinson", "hutch++", "exact", or "auto" (default); see the notes.
        max_products: Most products of the estimators. When they are used up, ``reached`` is False if the target is
            missed. "hutch++" makes at least 80 products, or 16 with ``known``. Defaults to 100.
        known: Eigenpairs of the same matrix, converged or not, which "hutch++" uses instead of its sketch: Ritz values
            sum to the trace in the space of their vectors, without a product. Default: none.
        memory_budget: Bytes that may be held at once beside the operator. Fewer probes are multiplied at a time, and
            the sketch is narrower or left out, as far as that needs. Default: the budget of the operator's problem.
        precision: "float64", or "auto" (default): on accelerators probes are multiplied in float32 where the operator
            offers it and a random product agrees with float64.
        seed: Seed of the probes. Defaults to 0.

    Returns:
        SpectralEstimate: value, standard error, confidence interval, ``reached``, method, cost. An exact trace has a
        standard error only for operators in float32: that of their rounding.

    Raises:
        InvalidInput: If the operator is not square, symmetric, linear and finite, if ``known`` does not fit the
            operator or the method, or an argument is out of range.
        TooLarge: If one probe does not fit the budget.

    Notes:
        "hutchinson" is the mean of z^T A z over random signs z (Girard 1989; Hutchinson 1990). "hutch++" computes the
        trace in the range of a random sketch exactly and applies Hutchinson's estimator to the rest (Meyer, Musco,
        Musco & Woodruff 2021). "exact" takes the diagonal from the structure of the operator without a product where
        possible (a Hessian whose parameters are weights and biases of linear and convolutional layers, a Kronecker
        product, a stored matrix), else from one product per dimension.

        "auto" is "exact" where that costs no more than the fewest products of "hutch++". Otherwise it makes 16 probes,
        continues with "hutchinson" if their variance predicts at most those products, else with "hutch++", whose sketch
        reuses the 16 products. It switches to "exact" where the target takes more probes than there are dimensions,
        within ``max_products``. Sharded operators support "hutchinson" only.

    Example:
        >>> round(trace_estimate(np.diag([3.0, 1.0, -2.0])).value, 12)
        2.0
    """
    require_name("method", method, get_args(TraceMethod))
    require_name("precision", precision, PROBE_PRECISIONS)
    target = error_target(relative_error, max_products, absolute_error, norm_error=relative_error)
    if isinstance(matrix, ShardedOperator):
        must = "the trace of a sharded operator is estimated by Hutchinson's method"
        require(method in ("auto", "hutchinson") and known is None, must, f"got method {method!r}, known {known!r}")
        return sharded_trace(matrix, target, seed)
    operator = ProbedOperator(matrix, seed)
    if known is not None:
        must = "known eigenpairs must be of the same matrix, and need method='hutch++'"
        require(isinstance(known, EigenpairsMeasurement), must, f"got {type(known).__name__}")
        require(known.eigenvectors is not None, must, "they hold no eigenvectors")
        require(known.size == operator.size, must, f"its size is {operator.size}, theirs {known.size}")
        require(method in ("auto", "hutch++"), must, f"method is {method!r}")
    fewest = BLOCK + (2 * SKETCH if known is None else 0)
    diagonal = exact_diagonal(matrix, operator, method, fewest, memory_budget)
    if diagonal is not None:
        return _exact_trace(operator, diagonal, rounding_errors(matrix, diagonal), target)
    num_known = 0 if known is None else len(known.eigenvalues)
    operator = in_verified_single(operator, precision)
    operator.use_narrow_vectors()
    plan = planned_probes("trace", matrix, operator, memory_budget, 0 if method == "hutchinson" else SKETCH, num_known)
    fewest = BLOCK + (2 * plan.sketch if known is None else 0)
    operator.hint_num_products(min(fewest, target.max_products), target.max_products)
    may_be_exact = method == "auto"
    probes = SignProbes(operator, plan).more() if method == "auto" and known is None else None
    if probes is not None and (not plan.sketch or probes.expected_number(target) <= fewest):
        method = "hutchinson"
    else:
        method = "hutch++" if plan.sketch else "hutchinson"
        first, probes = None if plan.is_limited else probes, None  # images that fill the budget are not kept
        sketch = range_sketch(operator, plan.sketch, known if plan.sketch else None, first)
        probes = SignProbes(operator, plan, sketch).more()
    value, error, norm = probes.until(target, may_be_exact)
    if may_be_exact and probes.is_dense_cheaper(target):
        del probes
        diagonal = diagonal_by_products(operator, plan.num_columns)
        return _exact_trace(operator, diagonal, rounding_errors(operator.matrix, diagonal), target)
    return _record("trace", operator, method, value, error, len(probes.values), target, norm=norm)


def _exact_trace(operator: ProbedOperator, diagonal: Tensor, errors: Tensor, target: ErrorTarget) -> SpectralEstimate:
    value, error = float(diagonal.sum()), float(errors.sum())
    return _record("trace", operator, "exact", value, error, operator.size, target)


@shown_work("Frobenius norm")
def frobenius_norm_estimate(
    matrix: Matrix,
    *,
    relative_error: float = 0.01,
    method: NormMethod = "auto",
    max_products: int = 2000,
    memory_budget: float | None = None,
    seed: int = 0,
) -> SpectralEstimate:
    """Estimate the Frobenius norm ||A||_F of a symmetric operator, with its standard error.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator A.
        relative_error: Target for the standard error, relative to the norm. Defaults to 0.01.
        method: "hutch++", "exact" (one product per dimension), or "auto" (default): exact where that takes no more
            products than the fewest of "hutch++", or than the target still takes, within ``max_products``.
        max_products: Most products of "hutch++". When they are used up, ``reached`` is False if the target is missed.
            Defaults to 2000.
        memory_budget: Bytes that may be held at once beside the operator, as for ``trace_estimate``; without a sketch
            ``method`` of the record is "hutchinson".
        seed: Seed of the probes. Defaults to 0.

    Returns:
        SpectralEstimate: value, standard error, confidence interval, ``reached``, method, cost.

    Raises:
        InvalidInput: If the operator is not square, symmetric, linear and finite, or an argument is out of range.
        TooLarge: If two probes do not fit the budget.

    Notes:
        ||A||_F^2 = ||A Q||_F^2 + E ||A (I - Q Q^T) z||^2 for random signs z and a basis Q of the range of a random
        sketch: one product per probe (Meyer, Musco, Musco & Woodruff 2021, for A^2). The standard error of the root is
        that of the square over twice the root. With B = (I - Q Q^T) A^2 (I - Q Q^T), the mean of (z^T B w)^2 over two
        probes z, w is tr(B^2), which ``form_errors`` needs. The interval is computed for the logarithm of the estimated
        term: where a few eigenvalues dominate, its error is proportional to its value.

    Example:
        >>> round(frobenius_norm_estimate(np.diag([3.0, -4.0])).value, 12)
        5.0
    """
    require_name("method", method, get_args(NormMethod))
    target = error_target(relative_error, max_products)
    operator = ProbedOperator(matrix, seed)
    budget_of(matrix, memory_budget)  # an odd budget raises also where it is not needed
    if not operator.size or (method == "auto" and operator.size <= 2 * SKETCH + BLOCK):
        return _exact_norm(operator, target)
    wished = 0 if method == "exact" else SKETCH
    plan = planned_probes("Frobenius norm", matrix, operator, memory_budget, wished)
    if method == "exact":
        return _exact_norm(operator, target, plan.num_columns)
    basis = orthonormal_range(operator.product(operator.signs(plan.sketch)))
    images = operator.product(basis)
    known = float(column_products(images, images).sum())
    del images  # not held beside those of probes
    values, products, size = np.zeros(0), np.zeros(0), operator.size
    while True:
        for start in range(0, BLOCK, plan.width):
            count = min(plan.width, BLOCK - start)
            images = _outside_images(operator, basis, count)
            inner = inner_matrix(images.T, images.T).numpy()
            del images
            values = np.append(values, inner.diagonal())
            products = np.append(products, inner[np.triu_indices(count, 1)])
        value = float(np.sqrt(known + values.mean()))
        spread = size * form_error(values / size, float(np.square(products).mean()) / size, size)
        error = spread / (2 * value) if value else 0.0
        missing = target.missing(len(values), value, error)
        if method == "auto" and operator.is_dense_cheaper(missing, target.max_products):
            del basis
            return _exact_norm(operator, target, plan.num_columns)
        if target.is_met(value, error) or operator.num_products + BLOCK > target.max_products:
            outside = float(values.mean())
            logs = interval(0.0, spread / outside if outside else 0.0, len(values))
            low, high = (operator.scale * float(np.sqrt(known + outside * np.exp(end))) for end in logs)
            found = operator.scale * value, operator.scale * error
            kind = "hutch++" if plan.sketch else "hutchinson"
            return _record("frobenius_norm", operator, kind, *found, len(values), target, ends=(low, high))


def _outside_images(operator: ProbedOperator, basis: Tensor, count: int) -> Tensor:
    """Images of random signs without their part in a basis."""
    probes = operator.signs(count)
    return operator.product(probes.addmm_(basis, basis.T @ probes, alpha=-1) if basis.shape[1] else probes)


def _exact_norm(operator: ProbedOperator, target: ErrorTarget, together: int = BLOCK) -> SpectralEstimate:
    squares = sum(float(column_products(columns, columns).sum()) for _, columns in operator.columns(together))
    return _record("frobenius_norm", operator, "exact", operator.scale * float(np.sqrt(squares)), 0.0, 0, target)


def _record(
    quantity: str,
    operator: ProbedOperator,
    method: str,
    value: float,
    error: float,
    count: int,
    target: ErrorTarget,
    norm: float = 0.0,
    ends: tuple[float, float] | None = None,
) -> SpectralEstimate:
    """The record of a value with its standard error over ``count`` values; ``ends`` are those of its interval, by
    default Student's."""
    is_exact = method == "exact"
    return SpectralEstimate(
        quantity=quantity,
        value=value,
        standard_error=error,
        interval=ends or interval(value, error, count),
        confidence=CONFIDENCE,
        method_error=0.0,
        asked=target.standard_error(value, norm),
        reached=is_exact or target.is_met(value, error, norm),
        num_probes=0 if is_exact else count,
        num_products=operator.num_products,
        method=method,
        size=operator.size,
        seed=operator.seed,
        provenance=operator.provenance,
    )
