"""Linear systems with a shifted Hessian, by a dense factorisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from torch import Tensor

from hessmap.errors import InvalidInput, checked_number, require
from hessmap.measurement.array_norms import Floats, frobenius_norm, largest_entry
from hessmap.measurement.krylov_solve import require_number, right_side_array
from hessmap.measurement.matrices import EPS, SMALLEST, Matrix, rounding_unit, symmetric_array
from hessmap.records import LinearSolution


def solve(matrix: Matrix, right_side: Tensor | NDArray[Any], shift: float = 0.0) -> LinearSolution:
    """Solve (H + shift I) x = right_side, for one right-hand side or for the columns of several.

    Cholesky where the shifted matrix is positive definite, Bunch-Kaufman (L D L^T with pivots) where it is indefinite.

    Args:
        matrix: Symmetric operator, tensor or array H of size n.
        right_side: Vector of n entries, or n x k columns.
        shift: Finite number that is added to the diagonal.

    Returns:
        LinearSolution: solution, method, backward error and reciprocal condition number.

    Raises:
        InvalidInput: If H + shift I is singular to working precision: if the norm of its inverse is above
            1 / (n eps (||H|| + |shift|)), the rounding of H and of the sum (1-norms; eps is that of float32 for H of an
            operator in float32). A shift that cancels H leaves nothing but rounding, however well conditioned that is.

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
