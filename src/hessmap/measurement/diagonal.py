"""The diagonal: from the structure of an operator where it has one, else from products with random vectors."""

from __future__ import annotations

from math import inf
from typing import Literal, get_args

import torch
from torch import Tensor

from hessmap.errors import require_name
from hessmap.linalg import SymmetricOperator, frobenius_norm, to_host
from hessmap.measurement.operators_in import Matrix, is_low_precision
from hessmap.measurement.probes import BLOCK, ErrorTarget, ProbedOperator, error_target, orthonormal_range
from hessmap.progress import shown_work
from hessmap.records import DiagonalEstimate

SKETCH = 2 * BLOCK
_NARROW_ERROR = 1e-6  # of sums of squares in float32, relative
DiagonalMethod = Literal["auto", "hutchinson", "hutch++", "exact"]


@shown_work("diagonal")
def diagonal_estimate(
    matrix: Matrix,
    *,
    relative_error: float = 0.05,
    method: DiagonalMethod = "auto",
    max_products: int = 2000,
    seed: int = 0,
) -> DiagonalEstimate:
    """Estimate the diagonal of a symmetric operator, with the standard error of every entry.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator A.
        relative_error: Target for the norm of the standard errors, relative to the norm of the diagonal. Defaults to
            0.05.
        method: "hutchinson", "hutch++", "exact", or "auto" (default); see the notes.
        max_products: Most products of the estimators. When they are used up, ``reached`` is False if the target is
            missed. Defaults to 2000.
        seed: Seed of the probes. Defaults to 0.

    Returns:
        DiagonalEstimate: values, standard errors, ``reached``, method, cost.

    Raises:
        InvalidInput: If the operator is not square, symmetric, linear and finite, or an argument is out of range.

    Notes:
        "hutchinson" is the mean of z * (A z) over random signs z (Bekas, Kokiopoulou & Saad 2007). "hutch++" is exact
        in the range Q of a random sketch, diag(A) = diag(Q Q^T A) + diag((I - Q Q^T) A), and uses probes for the second
        term. "exact" takes the diagonal from the structure of the operator where possible, as for ``trace_estimate``,
        else from one product per dimension. "auto" is "exact" where that costs no more than the fewest products of
        "hutch++", else "hutch++"; it switches to "exact" where the target takes more probes than there are dimensions,
        within ``max_products``.

    Example:
        >>> import numpy as np
        >>> diagonal_estimate(np.array([[2.0, 1.0], [1.0, -3.0]])).values
        array([ 2., -3.])
    """
    require_name("method", method, get_args(DiagonalMethod))
    target = error_target(relative_error, max_products)
    operator = ProbedOperator(matrix, seed)
    diagonal = exact_diagonal(matrix, operator, method, 2 * SKETCH + BLOCK)
    if diagonal is None:
        kind = "hutch++" if method == "auto" else method
        found = _sketched_diagonal(operator, target, SKETCH if kind == "hutch++" else 0, method == "auto")
        if found is not None:
            return _record(operator, kind, *found, target)
        diagonal = diagonal_by_products(operator)
    return _record(operator, "exact", diagonal, rounding_errors(matrix, diagonal), 0, target)


def exact_diagonal(matrix: Matrix, operator: ProbedOperator, method: str, fewest: int) -> Tensor | None:
    """The diagonal as it is, not in the unit of the products, if the method is "exact", or "auto" and probes would cost
    as much: from what the operator knows of itself, or by one product a dimension.

    ``fewest`` is the number of products without which probes give no answer.
    """
    if method not in ("auto", "exact") and operator.size:
        return None
    if isinstance(matrix, SymmetricOperator):
        known = matrix.exact_diagonal(max_products=fewest if method == "auto" else None)
        if known is not None and bool(torch.isfinite(known).all()):
            return to_host(known)
    if method == "auto" and operator.size > max(fewest, SKETCH + BLOCK):
        return None
    return diagonal_by_products(operator)


def diagonal_by_products(operator: ProbedOperator) -> Tensor:
    """The diagonal as it is, by one product a dimension."""
    parts = [torch.zeros(0, dtype=torch.float64)]
    parts += [to_host(columns[place].diagonal()) for place, columns in operator.columns()]
    return operator.scale * torch.cat(parts)


def rounding_errors(matrix: Matrix, diagonal: Tensor) -> Tensor:
    """What the number format of the operator may have cost every entry; nothing worth a word in float64."""
    return (_NARROW_ERROR if is_low_precision(matrix) else 0.0) * diagonal.abs()


def _sketched_diagonal(
    operator: ProbedOperator, target: ErrorTarget, width: int, may_be_exact: bool
) -> tuple[Tensor, Tensor, int] | None:
    """The diagonal, its standard errors and the number of probes; None where it costs less by a product a dimension."""
    basis = orthonormal_range(operator.product(operator.signs(min(width, operator.size))))
    curved = operator.product(basis)
    known = (basis * curved).sum(1)
    total, squares, count = torch.zeros_like(known), torch.zeros_like(known), 0
    while True:
        probes = operator.signs(BLOCK)
        found = probes * (operator.product(probes) - basis @ (curved.T @ probes))
        total, squares, count = total + found.sum(1), squares + found.square().sum(1), count + BLOCK
        mean = total / count
        errors = ((squares / count - mean.square()).clamp(min=0) / (count - 1)).sqrt()
        size, error = float((known + mean).norm()), float(errors.norm())
        if may_be_exact and operator.is_dense_cheaper(target.missing(count, size, error), target.max_products):
            return None
        if target.is_met(size, error) or operator.num_products + BLOCK > target.max_products:
            return operator.scale * to_host(known + mean), operator.scale * to_host(errors), count


def _record(
    operator: ProbedOperator, method: str, values: Tensor, errors: Tensor, count: int, target: ErrorTarget
) -> DiagonalEstimate:
    size, error = frobenius_norm(values.numpy()), frobenius_norm(errors.numpy())
    return DiagonalEstimate(
        values=values.numpy(),
        standard_errors=errors.numpy(),
        relative_error=error / size if size else (0.0 if error == 0.0 else inf),
        asked=target.relative_error,
        reached=method == "exact" or target.is_met(size, error),
        num_probes=count,
        num_products=operator.num_products,
        method=method,
        size=operator.size,
        seed=operator.seed,
        provenance=operator.provenance,
    )
