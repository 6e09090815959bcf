"""The spectrum of a deep linear loss Hessian whose kernel was taken out before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hessmap.errors import require
from hessmap.measurement.dense_spectrum import spectrum
from hessmap.records import Spectrum
from hessmap_research.deep_linear.reduction import Reduction

_REDUCTION = "Use reduce_deep_linear of hessmap_research.deep_linear"


def reduced_spectrum(reduction: Reduction) -> Spectrum:
    """The whole spectrum of a deep linear loss Hessian from its reduced matrix, the removed zeros filled in.

    Where the reduction fell back to the dense matrix there are none to fill in, and ``method`` says why. Taking out a
    kernel K moves no eigenvalue by more than ||H K||, which is added to ``eigenvalue_error``.
    """
    is_reduction = isinstance(reduction, Reduction)
    require(is_reduction, "the spectrum of a reduction needs one", f"got {type(reduction).__name__}", _REDUCTION)
    kept = spectrum(reduction.matrix)
    if not reduction.is_reduced:
        return replace(kept, method=f"dense: {reduction.obstacle}")
    assert kept.eigenvalue_error is not None
    place = int((kept.eigenvalues > 0).sum())
    return replace(
        kept,
        eigenvalues=np.insert(kept.eigenvalues, place, np.zeros(reduction.num_zeros)),
        method="reduced by the explicit kernel",
        num_zeros=reduction.num_zeros,
        kernel_residual=reduction.kernel_residual,
        eigenvalue_error=kept.eigenvalue_error + reduction.kernel_residual * kept.norm,
    )
