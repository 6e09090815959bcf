"""Linear systems with a shifted operator from products alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.curvature.lanczos import BlockLanczos
from hessmap.errors import checked_count, checked_number, require
from hessmap.measurement.matrices import Matrix, float_array, reachable_tolerance
from hessmap.measurement.random_probes import ProbedOperator
from hessmap.progress import shown_work
from hessmap.records import ShiftedSolution

_TOLERANCE = 1e-8
_LEAST = float(np.finfo(float).tiny)  # numbers below have fewer digits
_PROGRESS = 0.9  # of the residual: a round that leaves more has nothing more to give


@shown_work("linear system")
def krylov_solve(
    matrix: Matrix,
    right_side: Tensor | NDArray[Any],
    shift: float = 0.0,
    *,
    tolerance: float | None = None,
    max_basis: int = 200,
    max_products: int = 5000,
    seed: int = 0,
) -> ShiftedSolution:
    """Solve (H + shift I) x = b for the columns of b together, definite or not.

    The residual is made smallest over a block Krylov space with full orthogonalisation (block MINRES, all vectors
    kept); when ``max_basis`` vectors are full it starts again from what is left. Residuals are those of products made
    for it, not of the recurrence. A singular system has no answer: the smallest residual is returned, not converged.
    Eigenvalues of H + shift I below 64 units of rounding of ||H|| + |shift| count as zeros: nothing is solved along
    what a shift left of rounding alone. The default tolerance is 1e-8, and 1e-5 for an operator in float32.

    >>> krylov_solve(np.diag([1.0, 3.0]), np.array([2.0, 2.0]), shift=1.0).solution.round(12)
    array([1. , 0.5])
    """
    shift = checked_number("shift", shift)
    require(bool(np.isfinite(shift)), "shift must be finite", f"got {shift}")
    accuracy = reachable_tolerance(matrix, _TOLERANCE) if tolerance is None else checked_number("tolerance", tolerance)
    require(0 < accuracy < 1, "tolerance must lie between 0 and 1", f"got {accuracy}")
    max_basis = checked_count("max_basis", max_basis, 1)
    max_products = checked_count("max_products", max_products, 1)
    operator = ProbedOperator(matrix, seed)
    given = right_side_array(right_side, operator.size)
    right = torch.from_numpy(given.reshape(operator.size, -1).copy())
    sizes = right.abs().amax(0) if operator.size else right.new_ones(right.shape[1])
    sizes = torch.where(sizes > 0, sizes, 1.0)
    scaled = right / sizes
    norms = scaled.norm(dim=0)
    # The solution is kept in the unit of 1 / scale: that of a small matrix may be too large to be multiplied.
    solution, residual, num_rounds, before, scale = torch.zeros_like(scaled), scaled.clone(), 0, np.inf, 1.0
    while True:
        relative = torch.where(norms > 0, residual.norm(dim=0) / torch.where(norms > 0, norms, 1.0), 0.0)
        is_open = relative > accuracy
        largest = float(relative.max()) if relative.numel() else 0.0
        if not is_open.any() or operator.num_products >= max_products or largest > _PROGRESS * before:
            break
        allowed = 0.1 * accuracy * norms[is_open]
        solution[:, is_open] += _smallest_residual_solution(operator, residual[:, is_open], shift, max_basis, allowed)
        images = operator.product(solution)
        scale = _scale(operator, shift)
        residual = scaled - (operator.scale / scale * images + shift / scale * solution)
        num_rounds, before = num_rounds + 1, largest
    has_parts = (solution != 0).any(0)
    solution = solution * (sizes / scale)
    require_number(solution.numpy(), has_parts.numpy())
    return ShiftedSolution(
        solution=solution.numpy().reshape(given.shape),
        shift=shift,
        relative_residuals=relative.numpy(),
        tolerance=accuracy,
        converged=bool((relative <= accuracy).all()),
        num_products=operator.num_products,
        num_restarts=max(0, num_rounds - 1),
        size=operator.size,
        provenance=operator.provenance,
    )


def right_side_array(right_side: Tensor | NDArray[Any], size: int) -> NDArray[np.float64]:
    given = float_array(right_side, "a right-hand side")
    fits = given.ndim in (1, 2) and len(given) == size
    require(fits, f"the right-hand side must have {size} rows", f"got shape {given.shape}")
    return given


def require_number(solution: NDArray[np.float64], has_parts: NDArray[np.bool_]) -> None:
    """Raise where a solution is above the largest number, or where a column that ``has_parts`` has lost its digits."""
    remedy = "Scale the matrix up, or the right-hand side down"
    require(bool(np.isfinite(solution).all()), "a solution must be a finite number", "it is above the largest", remedy)
    is_lost = bool((has_parts & (np.abs(solution) < _LEAST).all(0)).any())
    require(not is_lost, "a solution must have digits", "it is too close to zero", "Scale the matrix down")


def _smallest_residual_solution(
    operator: ProbedOperator, right: Tensor, shift: float, max_basis: int, allowed: Tensor
) -> Tensor:
    """scale Q y with the smallest ||(A + shift) Q y - b||: A Q = Q T + B C makes it a small least-squares problem.

    The Krylov space of A is that of A + shift, so that the shift enters the small problem alone.
    """
    capacity = min(operator.size, max(max_basis, 2 * right.shape[1]))
    process = BlockLanczos(operator.product, capacity)
    # Residuals after a restart are small: directions are kept relative to their own size.
    process.start((right / right.norm(dim=0)).T, right.shape[1])
    while True:
        process.expand()
        scale = _scale(operator, shift)
        norm = operator.product.unit * float(torch.linalg.matrix_norm(process.projection, 1))
        projected = process.projection * (operator.product.unit / scale)
        projected.diagonal().add_(shift / scale)
        coupling = process.coupling * (operator.product.unit / scale)
        stacked = torch.cat([projected, coupling])
        target = torch.cat([process.basis @ right, right.new_zeros(len(coupling), right.shape[1])])
        small = _least_squares(stacked, target, operator.noise * (norm + abs(shift)) / scale)
        left = (stacked @ small - target).norm(dim=0)
        is_last = process.width == 0 or process.width > process.room
        if is_last or bool((left <= allowed).all()):
            return process.combine(small)


def _least_squares(matrix: Tensor, right: Tensor, noise: float) -> Tensor:
    """The shortest least-squares solution, where singular values up to ``noise`` are zeros."""
    left, values, vectors = torch.linalg.svd(matrix, full_matrices=False)
    kept = values > noise
    found: Tensor = vectors[kept].T @ ((left[:, kept].T @ right) / values[kept, None])
    return found


def _scale(operator: ProbedOperator, shift: float) -> float:
    """Of the shifted operator."""
    return max(operator.product.unit, abs(shift)) or 1.0
