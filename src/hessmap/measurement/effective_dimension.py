"""Effective number of curved directions, without a threshold of rank."""

from __future__ import annotations

import numpy as np

from hessmap.errors import require
from hessmap.measurement.dense_spectrum import whole_spectrum
from hessmap.measurement.matrices import Matrix
from hessmap.results import EffectiveDimension, Spectrum


def effective_dimension(matrix: Matrix | Spectrum, epsilon: float) -> EffectiveDimension:
    """The sum of h / (h + epsilon) over the magnitudes h of the eigenvalues, and their nuclear-to-spectral ratio.

    For a positive semi-definite matrix this is the number of well-determined parameters of Gull (1989) and MacKay
    (1992, "A practical Bayesian framework for backpropagation networks"), epsilon being the precision of the prior;
    it tends to the rank as epsilon goes to 0. For an indefinite matrix, h / (h + epsilon) of the signed eigenvalue has
    a pole at -epsilon and counts nothing, so magnitudes are summed and ``num_negative`` says how many were negative.

    The error bound uses |a / (a + eps) - b / (b + eps)| <= |a - b| / (a + eps) for a, b >= 0.

    >>> effective_dimension(np.diag([3.0, 1.0, 0.0]), epsilon=1.0).value
    1.25
    """
    require(0 < epsilon < np.inf, "epsilon must be positive and finite", f"got {epsilon}")
    found = whole_spectrum(matrix, "an effective dimension")
    magnitudes = np.abs(found.eigenvalues)
    error = found.eigenvalue_error
    return EffectiveDimension(
        value=float((magnitudes / (magnitudes + epsilon)).sum()),
        epsilon=float(epsilon),
        nuclear_ratio=float((magnitudes / found.norm).sum()) if found.norm else 0.0,
        num_negative=int((found.eigenvalues < -(error or 0.0)).sum()),
        error_bound=None if error is None else float(np.minimum(1.0, error / (magnitudes + epsilon)).sum()),
        size=len(magnitudes),
    )
