"""Linear systems with a shifted Hessian, by a dense factorisation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from torch import Tensor

from hessmap.errors import InvalidInput, checked_number, require, sentence
from hessmap.measurement.array_norms import Floats, frobenius_norm
from hessmap.measurement.krylov_solve import right_side_array
from hessmap.measurement.matrices import EPS, NARROW_EPS, Matrix, is_narrow, symmetric_array
from hessmap.results import LinearSolution


def solve(matrix: Matrix, right_side: Tensor | NDArray[Any], shift: float = 0.0) -> LinearSolution:
    """Solve (H + shift I) x = right_side, for one right-hand side or for the columns of several.

    Cholesky where the shifted matrix is positive definite, Bunch-Kaufman (L D L^T with pivots) where it is indefinite.
    A shifted matrix whose reciprocal condition number is below n eps (that of float32 for an operator in float32) is
    singular to working precision and refused.

    >>> solve(np.diag([1.0, 3.0]), np.array([2.0, 2.0]), shift=1.0).solution
    array([1. , 0.5])
    """
    array, _ = symmetric_array(matrix)
    shift = checked_number("shift", shift)
    require(bool(np.isfinite(shift)), "shift must be finite", f"got {shift}")
    given = right_side_array(right_side, len(array))
    shifted = np.array(array, order="F")
    shifted[np.diag_indices(len(array))] += shift
    columns = given[:, None] if given.ndim == 1 else given
    solution, method, reciprocal_condition = _factor_and_solve(shifted, columns, shift, is_narrow(matrix))
    return LinearSolution(
        solution=solution.reshape(given.shape),
        shift=shift,
        method=method,
        is_positive_definite=method == "cholesky",
        backward_error=_backward_error(shifted, solution, columns),
        reciprocal_condition=reciprocal_condition,
        size=len(array),
    )


def _factor_and_solve(shifted: Floats, right: Floats, shift: float, is_rounded: bool) -> tuple[Floats, str, float]:
    if not shifted.size:
        return np.zeros(right.shape), "cholesky", 1.0
    norm = float(np.abs(shifted).sum(axis=0).max())
    factor, info = lapack.dpotrf(shifted, lower=1)
    if info == 0:
        reciprocal_condition, _ = lapack.dpocon(factor, norm, uplo="L")
        _refuse_singular(reciprocal_condition, len(shifted), shift, is_rounded)
        solution, _ = lapack.dpotrs(factor, right, lower=1)
        return solution, "cholesky", float(reciprocal_condition)
    workspace, _ = lapack.dsytrf_lwork(len(shifted), lower=1)
    factor, pivots, info = lapack.dsytrf(shifted, lwork=int(workspace), lower=1)
    # A positive info is an exactly singular pivot block: the condition number is not to be estimated from it.
    reciprocal_condition = 0.0 if info > 0 else float(lapack.dsycon(factor, pivots, norm, lower=1)[0])
    _refuse_singular(reciprocal_condition, len(shifted), shift, is_rounded)
    solution, _ = lapack.dsytrs(factor, pivots, right, lower=1)
    return solution, "bunch-kaufman", reciprocal_condition


def _refuse_singular(reciprocal_condition: float, size: int, shift: float, is_rounded: bool) -> None:
    entries, eps = ("float32", NARROW_EPS) if is_rounded else ("float64", EPS)
    if not reciprocal_condition > size * eps:
        raise InvalidInput(
            sentence(
                f"H + shift I must be invertible in {entries}",
                f"with shift {shift:.6g} its reciprocal condition number is about {reciprocal_condition:.2g}",
                "Choose a shift that is no negated eigenvalue of H, and not tiny if H has a kernel",
            )
        )


def _backward_error(shifted: Floats, solution: Floats, right: Floats) -> float:
    residuals = _column_norms(shifted @ solution - right)
    sizes = frobenius_norm(shifted) * _column_norms(solution) + _column_norms(right)
    return float(np.divide(residuals, sizes, out=np.zeros_like(residuals), where=sizes > 0).max(initial=0.0))


def _column_norms(array: Floats) -> Floats:
    return np.array([frobenius_norm(column) for column in array.T])
