"""The diagonal: from the structure of an operator where it has one, else from products with random vectors."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Literal, get_args

import torch
from torch import Tensor

from hessmap.errors import require_name
from hessmap.linalg import SymmetricOperator, frobenius_norm, to_host
from hessmap.measurement.eigenpair_plan import budget_of
from hessmap.measurement.operators_in import Matrix, is_low_precision
from hessmap.measurement.probes import (
    BLOCK,
    PIECE,
    SKETCH,
    ErrorTarget,
    ProbedOperator,
    ProbedQuantity,
    ProbePlan,
    error_target,
    orthonormal_range,
    probe_plan,
)
from hessmap.progress import shown_work
from hessmap.records import DiagonalEstimate

_NARROW_ERROR = 1e-6  # of sums of squares in float32, relative
DiagonalMethod = Literal["auto", "hutchinson", "hutch++", "exact"]


@shown_work("diagonal")
def diagonal_estimate(
    matrix: Matrix,
    *,
    relative_error: float = 0.05,
    method: DiagonalMethod = "auto",
    max_products: int = 2000,
    memory_budget: float | None = None,
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
        memory_budget: Bytes that may be held at once beside the operator, as for ``trace_estimate``.
        seed: Seed of the probes. Defaults to 0.

    Returns:
        DiagonalEstimate: values, standard errors, ``reached``, method, cost.

    Raises:
        InvalidInput: If the operator is not square, symmetric, linear and finite, or an argument is out of range.
        TooLarge: If one probe does not fit the budget.

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
    diagonal = exact_diagonal(matrix, operator, method, 2 * SKETCH + BLOCK, memory_budget)
    if diagonal is None:
        sketch = 0 if method == "hutchinson" else SKETCH
        plan = planned_probes("diagonal", matrix, operator, memory_budget, sketch)
        kind = "hutch++" if plan.sketch else "hutchinson"
        found = _sketched_diagonal(operator, target, plan, method == "auto")
        if found is not None:
            return _record(operator, kind, *found, target)
        diagonal = diagonal_by_products(operator, plan.num_columns)
    return _record(operator, "exact", diagonal, rounding_errors(matrix, diagonal), 0, target)


def planned_probes(
    quantity: ProbedQuantity,
    matrix: Matrix,
    operator: ProbedOperator,
    memory_budget: float | None,
    sketch: int,
    known: int = 0,
) -> ProbePlan:
    """The plan within the budget of a call or of the operator, which the record then states."""
    item, budget = operator.product.dtype.itemsize, budget_of(matrix, memory_budget)
    plan = probe_plan(quantity, operator.size, item, budget, sketch=sketch, known=known)
    operator.notes = (*operator.notes, *plan.notes)
    if plan.is_limited:
        operator.product.check_now()  # before probes are held
    return plan


def exact_diagonal(
    matrix: Matrix, operator: ProbedOperator, method: str, fewest: int, memory_budget: float | None = None
) -> Tensor | None:
    """The diagonal as it is, not in the unit of the products, if the method is "exact", or "auto" and probes would cost
    as much: from what the operator knows of itself, or by one product a dimension.

    ``fewest`` is the number of products without which probes give no answer.
    """
    budget_of(matrix, memory_budget)  # an odd budget raises also where it is not needed
    if method not in ("auto", "exact") and operator.size:
        return None
    if isinstance(matrix, SymmetricOperator):
        known = matrix.exact_diagonal(max_products=fewest if method == "auto" else None)
        if known is not None and bool(torch.isfinite(known).all()):
            return to_host(known)
    if method == "auto" and operator.size > max(fewest, SKETCH + BLOCK):
        return None
    if operator.size <= fewest:
        return diagonal_by_products(operator)
    return diagonal_by_products(operator, planned_probes("trace", matrix, operator, memory_budget, 0).num_columns)


def diagonal_by_products(operator: ProbedOperator, together: int = BLOCK) -> Tensor:
    """The diagonal as it is, by one product a dimension, some of them at a time."""
    parts = [torch.zeros(0, dtype=torch.float64)]
    parts += [to_host(columns[place].diagonal()) for place, columns in operator.columns(together)]
    return operator.scale * torch.cat(parts)


def rounding_errors(matrix: Matrix, diagonal: Tensor) -> Tensor:
    """What the number format of the operator may have cost every entry; nothing worth a word in float64."""
    return (_NARROW_ERROR if is_low_precision(matrix) else 0.0) * diagonal.abs()


def _sketched_diagonal(
    operator: ProbedOperator, target: ErrorTarget, plan: ProbePlan, may_be_exact: bool
) -> tuple[Tensor, Tensor, int] | None:
    """The diagonal, its standard errors and the number of probes; None where it costs less by a product a dimension."""
    sketch = _DiagonalSketch(operator, plan.sketch) if plan.sketch else None
    sums = torch.zeros(2, operator.size, dtype=operator.product.dtype, device=operator.product.device)
    known, count = None if sketch is None else sketch.diagonal, 0
    while True:
        for start in range(0, BLOCK, plan.width):
            _add_probes(operator, min(plan.width, BLOCK - start), sketch, sums)
        count += BLOCK
        squares = [(values.square().sum(), errors.square().sum()) for values, errors in _entries(sums, known, count)]
        size, error = (sum(float(part[place]) for part in squares) ** 0.5 for place in (0, 1))
        if may_be_exact and operator.is_dense_cheaper(target.missing(count, size, error), target.max_products):
            return None
        if target.is_met(size, error) or operator.num_products + BLOCK > target.max_products:
            found = [(to_host(values), to_host(errors)) for values, errors in _entries(sums, known, count)]
            values, errors = (operator.scale * torch.cat(parts) for parts in zip(*found, strict=True))
            return values, errors, count


class _DiagonalSketch:
    """An orthonormal basis Q of the images of random signs, A Q, and diag(Q Q^T A)."""

    def __init__(self, operator: ProbedOperator, width: int) -> None:
        self.basis = orthonormal_range(operator.product(operator.signs(width)))
        self.curved = operator.product(self.basis)
        self.diagonal = torch.einsum("ij,ij->i", self.basis, self.curved)


def _add_probes(operator: ProbedOperator, count: int, sketch: _DiagonalSketch | None, sums: Tensor) -> None:
    """Add z * (B z) of some probes z, and their squares, to the two sums; B is the matrix outside of the sketch."""
    probes = operator.signs(count)
    found = operator.product(probes)
    if sketch is not None:
        found -= sketch.basis @ (sketch.curved.T @ probes)
    found *= probes
    del probes
    sums[0] += found.sum(1)
    sums[1] += found.square_().sum(1)


def _entries(sums: Tensor, known: Tensor | None, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The diagonal and its standard errors, some entries at a time."""
    rows = max(2**10, min(PIECE, sums.shape[1] // 32))
    for start in range(0, sums.shape[1], rows):
        part = slice(start, start + rows)
        mean = sums[0, part] / count
        errors = ((sums[1, part] / count - mean.square()).clamp(min=0) / (count - 1)).sqrt()
        yield mean if known is None else known[part] + mean, errors


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
