"""Linear systems with a shifted symmetric operator: from products alone, or by a dense factorisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import lapack
from torch import Tensor

from hessmap.errors import InvalidInput, checked_count, checked_number, require
from hessmap.linalg import BlockLanczos, Floats, ShardedOperator, frobenius_norm, inner_matrix, largest_entry, to_host
from hessmap.measurement.operators_in import (
    EPS,
    SMALLEST,
    Matrix,
    float_array,
    reachable_tolerance,
    rounding_unit,
    symmetric_array,
)
from hessmap.measurement.probes import ProbedOperator
from hessmap.measurement.sharded import sharded_solve, sharded_tolerance
from hessmap.progress import shown_work
from hessmap.records import LinearSolution, ShiftedSolution

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
    """Solve (H + shift I) x = b from products with H, for all columns of b together; H + shift I may be indefinite.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator H of size n.
        right_side: Vector b of n entries, or n x k columns.
        shift: Finite number that is added to the diagonal. Defaults to 0.0.
        tolerance: Bound on ||(H + shift I) x - b|| relative to ||b||, for every column. Defaults to 1e-8, or 1e-5 for
            an operator in float32.
        max_basis: Most vectors that are stored before a restart; at least 2 k are. Defaults to 200.
        max_products: Number of products at which no further restart is made. Defaults to 5000.
        seed: Seed in the provenance of a tensor or array; the iteration draws no random vectors. Defaults to 0.

    Returns:
        ShiftedSolution: solution (of the shape of b), relative residuals, ``converged``, cost. For a singular system
        without a solution it has the smallest residual found, and is not ``converged``.

    Raises:
        InvalidInput: If the operator is not square, symmetric, linear and finite, if b does not have n rows, if an
            argument is out of range, or if the solution overflows or underflows.

    Notes:
        Block MINRES with a stored, fully orthogonalised basis: the residual is minimised over the block Krylov space
        (Paige & Saunders 1975, for one vector). When the basis is full, the iteration restarts from the residual.
        Residuals are those of products with the solution, not of the recurrence. Singular values of the projected H +
        shift I below 64 units of rounding of ||H|| + |shift| count as zeros: nothing is solved along a direction where
        the shift cancels H up to rounding.

    Example:
        >>> krylov_solve(np.diag([1.0, 3.0]), np.array([2.0, 2.0]), shift=1.0).solution.round(12)
        array([1. , 0.5])
    """
    shift = checked_number("shift", shift)
    require(bool(np.isfinite(shift)), "shift must be finite", f"got {shift}")
    accuracy = reachable_tolerance(matrix, _TOLERANCE) if tolerance is None else checked_number("tolerance", tolerance)
    require(0 < accuracy < 1, "tolerance must be between 0 and 1", f"got {accuracy}")
    max_basis = checked_count("max_basis", max_basis, 1)
    max_products = checked_count("max_products", max_products, 1)
    if isinstance(matrix, ShardedOperator):
        accuracy = max(accuracy, sharded_tolerance(matrix, 0.0)) if tolerance is None else accuracy
        return sharded_solve(matrix, right_side, shift, accuracy, max_basis, max_products)
    operator = ProbedOperator(matrix, seed)
    given = right_side_array(right_side, operator.size)
    like = operator.product
    right = torch.from_numpy(given.reshape(operator.size, -1).copy()).to(like.dtype).to(like.device)
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
    found = to_host(solution).numpy()
    require_number(found, has_parts.cpu().numpy())
    return ShiftedSolution(
        solution=found.reshape(given.shape),
        shift=shift,
        relative_residuals=to_host(relative).numpy(),
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
    require(not is_lost, "a solution must not underflow", "it is too close to zero", "Scale the matrix down")


def _smallest_residual_solution(
    operator: ProbedOperator, right: Tensor, shift: float, max_basis: int, allowed: Tensor
) -> Tensor:
    """scale Q y with the smallest ||(A + shift) Q y - b||: A Q = Q T + B C makes it a small least-squares problem.

    The Krylov space of A is that of A + shift, so that the shift enters the small problem alone.
    """
    capacity = min(operator.size, max(max_basis, 2 * right.shape[1]))
    process = BlockLanczos(operator.product, capacity, precision=operator.product.dtype)
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
        inside = inner_matrix(process.basis, right.T)
        target = torch.cat([inside, inside.new_zeros(len(coupling), right.shape[1])])
        small = _least_squares(stacked, target, operator.noise * (norm + abs(shift)) / scale)
        left = (stacked @ small - target).norm(dim=0)
        is_last = process.width == 0 or process.width > process.room
        if is_last or bool((left <= allowed.cpu()).all()):
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


def solve(matrix: Matrix, right_side: Tensor | NDArray[Any], shift: float = 0.0) -> LinearSolution:
    """Solve (H + shift I) x = b for one or several right-hand sides, by a dense factorisation.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator H of size n. An operator is made dense.
        right_side: Vector b of n entries, or n x k columns.
        shift: Finite number that is added to the diagonal. Defaults to 0.0.

    Returns:
        LinearSolution: solution, method, backward error and reciprocal condition number.

    Raises:
        InvalidInput: If H + shift I is singular to working precision: if the norm of its inverse is above 1 / (n eps
            (||H|| + |shift|)), the rounding of H and of the sum (1-norms; eps is that of float32 for H of an operator
            in float32). A shift that cancels H leaves only rounding, however well conditioned that is. Also if H is not
            square, symmetric and finite, or an argument has the wrong shape.

    Notes:
        Cholesky where the shifted matrix is positive definite, Bunch-Kaufman (L D L^T with pivots) where it is
        indefinite.

    Example:
        >>> solve(np.diag([1.0, 3.0]), np.array([2.0, 2.0]), shift=1.0).solution
        array([1. , 0.5])
    """
    array, _ = symmetric_array(matrix)
    shift = checked_number("shift", shift)
    require(bool(np.isfinite(shift)), "shift must be finite", f"got {shift}")
    given = right_side_array(right_side, len(array))
    columns = given[:, None] if given.ndim == 1 else given
    exponents = np.frexp(np.abs(columns).max(axis=0, initial=0.0))[1]  # of the unit of each column
    columns = np.ldexp(columns, -exponents)
    system = _shifted_system(array, shift, rounding_unit(matrix))
    solution, method, reciprocal_condition = _factor_and_solve(system, columns)
    error = _backward_error(system.matrix, solution, columns)
    with np.errstate(over="ignore", under="ignore"):
        found = np.ldexp(solution, exponents - system.exponent)
    require_number(found, (solution != 0).any(axis=0))
    return LinearSolution(
        solution=found.reshape(given.shape),
        shift=shift,
        method=method,
        is_positive_definite=method == "cholesky",
        backward_error=error,
        reciprocal_condition=reciprocal_condition,
        size=len(array),
    )


@dataclass(frozen=True)
class _ShiftedSystem:
    """H + shift I over 2^exponent, which brings its numbers near one; ``size`` is ||H|| + |shift| in that unit, and
    ``rounding`` how far the sum may be off where the entries of H are rounded to ``eps``."""

    matrix: Floats
    exponent: int
    size: float
    rounding: float
    eps: float


def _shifted_system(array: Floats, shift: float, eps: float) -> _ShiftedSystem:
    largest = max(largest_entry(array), abs(shift))
    exponent = int(np.frexp(largest)[1])
    shifted, moved = np.asfortranarray(np.ldexp(array, -exponent)), float(np.ldexp(shift, -exponent))
    norm = float(np.abs(shifted).sum(axis=0).max(initial=0.0))
    shifted[np.diag_indices(len(array))] += moved
    # Numbers near the smallest are known to no more than that.
    absolute = float(np.ldexp(SMALLEST, -exponent)) if largest else 0.0
    rounding = len(array) * (eps * norm + EPS * abs(moved) + absolute)
    return _ShiftedSystem(shifted, exponent, norm + abs(moved), rounding, eps)


def _factor_and_solve(system: _ShiftedSystem, right: Floats) -> tuple[Floats, str, float]:
    shifted = system.matrix
    if not shifted.size:
        return np.zeros(right.shape), "cholesky", 1.0
    norm = float(np.abs(shifted).sum(axis=0).max())
    factor, info = lapack.dpotrf(shifted, lower=1)
    if info == 0:
        reciprocal_condition = _checked_condition(system, norm * float(lapack.dpocon(factor, norm, uplo="L")[0]))
        solution, _ = lapack.dpotrs(factor, right, lower=1)
        return solution, "cholesky", reciprocal_condition
    workspace, _ = lapack.dsytrf_lwork(len(shifted), lower=1)
    factor, pivots, info = lapack.dsytrf(shifted, lwork=int(workspace), lower=1)
    # A positive info is an exactly singular pivot block: the condition number is not to be estimated from it.
    smallest = 0.0 if info > 0 else norm * float(lapack.dsycon(factor, pivots, norm, lower=1)[0])
    reciprocal_condition = _checked_condition(system, smallest)
    solution, _ = lapack.dsytrs(factor, pivots, right, lower=1)
    return solution, "bunch-kaufman", reciprocal_condition


def _checked_condition(system: _ShiftedSystem, smallest: float) -> float:
    """The reciprocal condition number, where ``smallest`` is that of the norm of the inverse."""
    reciprocal_condition = smallest / system.size if system.size else 0.0
    if not smallest > system.rounding:
        text = f"H + shift*I is numerically singular (rcond {reciprocal_condition:.1g}); change the shift."
        raise InvalidInput(f"{text} The entries of H are float32." if system.eps > EPS else text)
    return reciprocal_condition


def _backward_error(shifted: Floats, solution: Floats, right: Floats) -> float:
    residuals = _column_norms(shifted @ solution - right)
    sizes = frobenius_norm(shifted) * _column_norms(solution) + _column_norms(right)
    return float(np.divide(residuals, sizes, out=np.zeros_like(residuals), where=sizes > 0).max(initial=0.0))


def _column_norms(array: Floats) -> Floats:
    return np.array([frobenius_norm(column) for column in array.T])
