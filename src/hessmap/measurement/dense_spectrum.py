"""All eigenvalues of a symmetric matrix, by LAPACK."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.linalg
import torch

from hessmap.errors import checked_number, require, short_text
from hessmap.linalg import Floats, column_norms, require_memory
from hessmap.measurement.operators_in import (
    SMALLEST,
    Matrix,
    is_low_precision,
    operator_scale,
    rounding_unit,
    symmetric_array,
)
from hessmap.records import Provenance, Spectrum, provenance


def spectrum(matrix: Matrix, vectors: bool = False, scale: float | None = None) -> Spectrum:
    """Compute all eigenvalues of a symmetric matrix or operator by LAPACK.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator H of size n. An operator is made dense.
        vectors: Whether eigenvectors and their residuals are computed. Defaults to False.
        scale: Norm that ranks of the result are relative to. Default: ``scale`` of the operator if it has one, else
            ||H||.

    Returns:
        Spectrum: eigenvalues (descending), eigenvectors and residuals if requested, and ``eigenvalue_error``.

    Raises:
        InvalidInput: If the matrix is not square, symmetric, real, float64 and finite, or an argument is out of range.
        TooLarge: If the matrices that LAPACK needs do not fit the free memory.

    Notes:
        The driver is ``dsyevd``: reduction to tridiagonal form, then QL for eigenvalues alone, divide and conquer with
        eigenvectors. ``eigenvalue_error`` is n eps ||H||, the usual bound on the backward error, plus the norm of the
        discarded antisymmetric part and n times the smallest subnormal number. The matrix of an operator in float32 is
        decomposed in float64; eps is then that of float32, and a note of the provenance states it.

    Example:
        >>> spectrum(np.array([[0.0, 2.0], [2.0, 0.0]])).eigenvalues
        array([ 2., -2.])
    """
    require(isinstance(vectors, bool), "vectors must be True or False", f"got {short_text(vectors)}")
    array, asymmetry = symmetric_array(matrix)
    # LAPACK works on a copy; with vectors it needs two more, and the product for the residuals one.
    needed = 8 * array.size * (4 if vectors else 1)
    require_memory(f"the spectrum of a matrix of size {len(array)}", needed, "Use a Krylov or stochastic method")
    eigenvalues, eigenvectors = _eigenpairs(array) if vectors else (_eigenvalues(array), None)
    residuals = np.zeros(0)
    if eigenvectors is not None:
        residuals = column_norms(array @ eigenvectors - eigenvectors * eigenvalues)
    norm = float(np.abs(eigenvalues).max(initial=0.0))
    carried = operator_scale(matrix) if scale is None else checked_number("scale", scale)
    require(carried is None or 0 <= carried < np.inf, "scale must be finite and not negative", f"got {carried}")
    return Spectrum(
        eigenvalues=eigenvalues,
        method="dense",
        converged=True,
        residuals=residuals,
        scale=norm if carried is None else carried,
        eigenvectors=eigenvectors,
        provenance=_origin(matrix),
        eigenvalue_error=len(array) * (rounding_unit(matrix) * norm + (SMALLEST if norm else 0.0)) + asymmetry,
        entries="float32" if is_low_precision(matrix) else "float64",
    )


def _origin(matrix: Matrix) -> Provenance:
    origin: Provenance = getattr(matrix, "provenance", None) or provenance()
    if not is_low_precision(matrix):
        return origin
    note = "the entries of the matrix are float32; they were decomposed in float64"
    return replace(origin, notes=(*origin.notes, note))


def whole_spectrum(matrix: Matrix | Spectrum, needed_by: str) -> Spectrum:
    """A given Spectrum as it is, so that nothing is decomposed twice; that of a matrix. It must be complete."""
    found = matrix if isinstance(matrix, Spectrum) else spectrum(matrix)
    require(
        found.is_complete,
        f"{needed_by} needs the whole spectrum",
        f"this one holds {len(found.eigenvalues)} of {found.size} eigenvalues",
        "Use spectrum(H)",
    )
    return found


def _eigenvalues(array: Floats) -> Floats:
    if not array.size:
        return np.zeros(0)
    # The tridiagonal reduction of torch's LAPACK is faster than scipy's; with eigenvectors there is no difference.
    # torch reads neither reversed nor read-only arrays.
    given = torch.from_numpy(np.require(array, requirements=("C_CONTIGUOUS", "WRITEABLE")))
    return np.ascontiguousarray(torch.linalg.eigvalsh(given).numpy()[::-1])


def _eigenpairs(array: Floats) -> tuple[Floats, Floats]:
    if not array.size:
        return np.zeros(0), np.zeros((0, 0))
    # The transpose of a row-major array is column-major, and equal here: LAPACK then takes it without reordering.
    ascending, columns = scipy.linalg.eigh(array.T, driver="evd", check_finite=False)
    return np.ascontiguousarray(ascending[::-1]), np.ascontiguousarray(columns[:, ::-1])
