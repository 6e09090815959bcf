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
    """The whole spectrum of a symmetric matrix or operator, with eigenvectors and their residuals if asked for.

    The driver is ``dsyevd``: tridiagonal form, then QL for values alone, divide and conquer with vectors. Values alone
    are taken by torch's LAPACK, whose tridiagonal form is the faster one, the more so the larger the matrix. With
    vectors it makes no difference.

    ``scale`` is the norm that ranks will be relative to; by default what the operator carries, else its own norm.
    ``eigenvalue_error`` is n eps ||H||, the usual bound of the backward error, plus the asymmetry that was dropped and
    n times the smallest number, to which entries near zero are known. The matrix of an operator in float32 is
    decomposed in float64; eps is that of float32 then, and the notes say so.

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
    # torch reads neither reversed nor read-only arrays.
    given = torch.from_numpy(np.require(array, requirements=("C_CONTIGUOUS", "WRITEABLE")))
    return np.ascontiguousarray(torch.linalg.eigvalsh(given).numpy()[::-1])


def _eigenpairs(array: Floats) -> tuple[Floats, Floats]:
    if not array.size:
        return np.zeros(0), np.zeros((0, 0))
    # The transpose of a row-major array is column-major, and equal here: LAPACK then takes it without reordering.
    ascending, columns = scipy.linalg.eigh(array.T, driver="evd", check_finite=False)
    return np.ascontiguousarray(ascending[::-1]), np.ascontiguousarray(columns[:, ::-1])
