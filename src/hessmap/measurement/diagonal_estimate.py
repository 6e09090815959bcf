"""The diagonal: from the structure of an operator where it has one, else from products with random vectors."""

from __future__ import annotations

from math import inf
from typing import Literal, get_args

import torch
from torch import Tensor

from hessmap.errors import unknown_name
from hessmap.measurement.exact_diagonal import SKETCH, diagonal_without_probes, rounding
from hessmap.measurement.interval import Wanted
from hessmap.measurement.matrices import Matrix
from hessmap.measurement.probes import BLOCK, Probed, orthonormal_range
from hessmap.results import DiagonalEstimate

DiagonalMethod = Literal["auto", "hutchinson", "hutch++", "exact"]


def diagonal_estimate(
    matrix: Matrix,
    *,
    relative_error: float = 0.05,
    method: DiagonalMethod = "auto",
    max_products: int = 2000,
    seed: int = 0,
) -> DiagonalEstimate:
    """The diagonal, with probes until the norm of its standard errors is ``relative_error`` of its own norm.

    "hutchinson": the mean of z * (A z) over random signs z (Bekas, Kokiopoulou & Saad 2007). "hutch++": exact in the
    range of a random sketch, diag(A) = diag(Q Q^T A) + diag((I - Q Q^T) A), probes for the rest. "exact": from the
    structure of the operator where that tells it, as for ``trace_estimate``, else by one product a dimension. "auto" is
    "exact" where that costs no more than the fewest products of "hutch++", else that.

    >>> import numpy as np
    >>> diagonal_estimate(np.array([[2.0, 1.0], [1.0, -3.0]])).values
    array([ 2., -3.])
    """
    if method not in get_args(DiagonalMethod):
        raise unknown_name("method", method, get_args(DiagonalMethod))
    wanted = Wanted(relative_error, 0.0, max_products)
    wanted.check()
    probed = Probed(matrix, seed)
    diagonal = diagonal_without_probes(matrix, probed, method, 2 * SKETCH + BLOCK)
    if diagonal is not None:
        return _record(probed, "exact", diagonal, rounding(matrix, diagonal), 0, wanted)
    method = "hutch++" if method == "auto" else method
    values, errors, count = _sketched(probed, wanted, SKETCH if method == "hutch++" else 0)
    return _record(probed, method, values, errors, count, wanted)


def _sketched(probed: Probed, wanted: Wanted, width: int) -> tuple[Tensor, Tensor, int]:
    basis = orthonormal_range(probed.product(probed.signs(min(width, probed.size))))
    curved = probed.product(basis)
    known = (basis * curved).sum(1)
    total, squares, count = torch.zeros_like(known), torch.zeros_like(known), 0
    while True:
        probes = probed.signs(BLOCK)
        found = probes * (probed.product(probes) - basis @ (curved.T @ probes))
        total, squares, count = total + found.sum(1), squares + found.square().sum(1), count + BLOCK
        mean = total / count
        errors = ((squares / count - mean.square()).clamp(min=0) / (count - 1)).sqrt()
        is_met = wanted.is_met(float((known + mean).norm()), float(errors.norm()))
        if is_met or probed.num_products + BLOCK > wanted.max_products:
            return known + mean, errors, count


def _record(
    probed: Probed, method: str, values: Tensor, errors: Tensor, count: int, wanted: Wanted
) -> DiagonalEstimate:
    size, error = float(values.norm()), float(errors.norm())
    return DiagonalEstimate(
        values=(probed.scale * values).numpy(),
        standard_errors=(probed.scale * errors).numpy(),
        relative_error=error / size if size else (0.0 if error == 0.0 else inf),
        asked=wanted.relative_error,
        reached=method == "exact" or wanted.is_met(size, error),
        num_probes=count,
        num_products=probed.num_products,
        method=method,
        size=probed.size,
        seed=probed.seed,
        provenance=probed.provenance,
    )
