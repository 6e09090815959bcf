"""The traces of all diagonal blocks of a large operator at once: every product with a random vector serves all."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
import torch
from torch import Tensor

from hessmap.errors import require
from hessmap.measurement.diagonal_estimate import diagonal_by_products
from hessmap.measurement.matrices import Floats, Matrix
from hessmap.measurement.random_probes import (
    CONFIDENCE,
    ErrorTarget,
    ProbedOperator,
    error_target,
    interval,
    standard_error,
)
from hessmap.measurement.sketched_trace import EntryMoments
from hessmap.progress import expect_products, shown_work
from hessmap.records import EigenpairsMeasurement, SpectralEstimate

_TOGETHER = 2**28  # bytes of vectors that are multiplied at once
_FEWEST = 4


@dataclass(frozen=True, eq=False)
class BlockTraces:
    """The trace of every block with its standard error, and that of the whole."""

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
    seed: int = 0,
) -> BlockTraces:
    """The traces of the blocks that ``block_of`` numbers, one number for every row, from z * (A z) over random signs z.

    Probes are drawn until the standard error of the whole trace is ``relative_error`` of it and the norm of those of
    the blocks is the same part of the norm of their traces. ``known`` holds vectors V and values L of any matrix that
    is near to this one: with A = V L V^T + (A - V L V^T) the first part is summed exactly and the probes see the
    second alone, which leaves the mean as it is and takes the outliers out of its error. Where a product for every
    dimension takes no more than the probes, the traces are exact.

    >>> found = block_traces(np.diag([3.0, 1.0, -2.0]), torch.tensor([0, 0, 1]))
    >>> found.values.round(12), round(found.whole.value, 12)
    (array([ 4., -2.]), 2.0)
    """
    target = error_target(relative_error, max_products)
    operator = ProbedOperator(matrix, seed)
    expect_products(max_products)
    must = f"every one of {operator.size} rows must belong to a block"
    require(block_of.shape == (operator.size,), must, f"the numbers of blocks have shape {tuple(block_of.shape)}")
    num_blocks = int(block_of.max()) + 1 if operator.size else 0
    vectors, curvatures = _known_part(known, operator.size)
    inside = _sums(vectors.square() @ curvatures, block_of, num_blocks)
    width = max(1, min(16, _TOGETHER // (8 * max(1, operator.size))))
    if operator.size <= width:
        return _exact_traces(operator, block_of, num_blocks, target)
    values, entries = np.zeros((0, num_blocks)), EntryMoments(operator.size)
    while True:
        probes = operator.signs(width)
        images = operator.product(probes) - vectors @ ((curvatures / operator.scale)[:, None] * (vectors.T @ probes))
        found = torch.stack([_sums(column, block_of, num_blocks) for column in (probes * images).T])
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
            return _exact_traces(operator, block_of, num_blocks, target)
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


def _exact_traces(operator: ProbedOperator, block_of: Tensor, num_blocks: int, target: ErrorTarget) -> BlockTraces:
    """By one product a dimension."""
    means = _sums(diagonal_by_products(operator), block_of, num_blocks).numpy()
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


def _known_part(known: EigenpairsMeasurement | None, size: int) -> tuple[Tensor, Tensor]:
    if known is None:
        return torch.zeros(size, 0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
    must = "known pairs must hold vectors of the size of the operator"
    require(known.eigenvectors is not None and known.size == size, must, f"size is {size}, theirs {known.size}")
    assert known.eigenvectors is not None
    return torch.from_numpy(known.eigenvectors), torch.from_numpy(known.eigenvalues)


def _sums(column: Tensor, block_of: Tensor, num_blocks: int) -> Tensor:
    return torch.zeros(num_blocks, dtype=torch.float64).index_add_(0, block_of, column)


def _norm(values: Floats) -> float:
    return float(np.linalg.norm(values)) if np.isfinite(values).all() else inf
