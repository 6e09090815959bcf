"""Numerical rank: a count of singular values above a threshold, with the gap that makes it believable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from hessmap.curvature.operator import SymmetricOperator
from hessmap.errors import checked_number, require
from hessmap.measurement.array_norms import Floats, asymmetry
from hessmap.measurement.block_compression import spectra_by_blocks
from hessmap.measurement.dense_spectrum import spectrum, whole_spectrum
from hessmap.measurement.matrices import (
    EPS,
    NARROW_EPS,
    NARROW_TOLERANCE,
    Matrix,
    asymmetry_tolerance,
    carried_scale,
    dense_array,
    is_narrow,
    rounding_unit,
)
from hessmap.records import Provenance, RankMeasurement, Spectrum, provenance

RELATIVE_TOLERANCE = 1e-12
# What is dropped must be below a tenth of the threshold, and what is kept a thousand times above what is dropped.
GREY_BELOW, CLEAR_GAP = 10.0, 1e3


def numerical_rank(
    matrix: Matrix | Spectrum, scale: float | None = None, relative_tolerance: float | None = None
) -> RankMeasurement:
    """How many singular values exceed ``relative_tolerance * scale``.

    ``scale`` is by default what the operator or Spectrum carries (for the three Hessians of a Problem the norm of the
    loss Hessian: the functional Hessian of a trained network is small, and its own norm would lift noise above the
    cut), else the matrix's own spectral norm. The default tolerance is max(1e-12, n eps): for linear networks of a
    few thousand parameters the kept values were above 2e-9 and the dropped ones below 5e-16 of that scale, and 1e-12
    is the middle of the two; from n = 4504 on the bound of the rounding error, n eps, is larger. Where the entries are
    float32 it is max(1e-5, n eps) with the eps of float32.

    ``gap`` is smallest_kept / largest_dropped; inf if nothing is kept, or nothing but exact zeros is dropped. The rank
    is ``decidable`` when every dropped singular value is below a tenth of the threshold, the gap is at least 1000, and
    the kept ones exceed the error bound of the singular values, so that none of them can be zero.

    Operators of 1,000 parameters and more are made smaller where their parameter tensors allow it
    (``spectra_by_blocks``); ``largest_dropped`` is then at least the bound of what that took for zeros. A Spectrum is
    used as it is. Arrays that are not symmetric (data matrices) go through their singular values.

    >>> numerical_rank(np.diag([3.0, 1.0, 1e-17])).value
    2
    """
    found = _of_spectrum(matrix) if isinstance(matrix, Spectrum) else _of_matrix(matrix)
    own = float(found.values.max(initial=0.0))
    given = found.scale if scale is None else checked_number("scale", scale)
    reference = own if given is None else given
    require(
        np.isfinite(reference) and (reference > 0 or (reference == 0 and own == 0)),
        "scale must be positive and finite",
        f"got {reference} for a matrix of norm {own:.3g}",
        "Pass the norm of the loss Hessian, or leave scale out",
    )
    least, eps = (NARROW_TOLERANCE, NARROW_EPS) if found.entries == "float32" else (RELATIVE_TOLERANCE, EPS)
    default = max(least, min(0.5, max(found.shape) * eps))
    tolerance = default if relative_tolerance is None else checked_number("relative_tolerance", relative_tolerance)
    require(0 < tolerance < 1, "relative_tolerance must lie between 0 and 1", f"got {tolerance}")
    return _rank_measurement(found, tolerance * reference, reference)


@dataclass(frozen=True)
class _SingularValues:
    values: Floats
    scale: float | None
    error: float | None
    shape: tuple[int, int]
    method: str
    provenance: Provenance | None
    entries: str = "float64"
    largest_removed: float = 0.0  # a bound of what a reduction took for zeros


def _of_spectrum(given: Spectrum) -> _SingularValues:
    found = whole_spectrum(given, "a rank")
    values = np.abs(found.eigenvalues)
    shape = len(values), len(values)
    error, origin = found.eigenvalue_error, found.provenance
    removed = found.kernel_residual * found.norm
    return _SingularValues(values, found.scale, error, shape, found.method, origin, found.entries, removed)


def _of_matrix(matrix: Matrix) -> _SingularValues:
    if isinstance(matrix, SymmetricOperator):
        return _of_spectrum(spectra_by_blocks([matrix])[0])
    array = dense_array(matrix)
    rows, columns = array.shape
    if rows == columns and asymmetry(array) <= asymmetry_tolerance(matrix):
        return _of_spectrum(spectrum(array, scale=carried_scale(matrix)))
    values = scipy.linalg.svdvals(array, check_finite=False) if array.size else np.zeros(0)
    error = max(rows, columns) * rounding_unit(matrix) * float(values.max(initial=0.0))
    origin, entries = provenance(), "float32" if is_narrow(matrix) else "float64"
    return _SingularValues(values, carried_scale(matrix), error, array.shape, "singular values", origin, entries)


def _rank_measurement(found: _SingularValues, threshold: float, scale: float) -> RankMeasurement:
    values = found.values
    kept, dropped = values[values > threshold], values[values <= threshold]
    smallest_kept = float(kept.min()) if kept.size else 0.0
    largest_dropped = float(dropped.max(initial=found.largest_removed))
    gap = smallest_kept / largest_dropped if kept.size and largest_dropped > 0 else float("inf")
    is_resolved = found.error is None or not kept.size or found.error < smallest_kept
    return RankMeasurement(
        value=int(kept.size),
        threshold=threshold,
        scale=scale,
        smallest_kept=smallest_kept,
        largest_dropped=largest_dropped,
        gap=gap,
        decidable=is_resolved and largest_dropped <= threshold / GREY_BELOW and gap >= CLEAR_GAP,
        size=min(found.shape),
        method=found.method,
        provenance=found.provenance,
    )
