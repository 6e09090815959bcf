"""Spectra and what is read off them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hessmap.results.provenance import Provenance
from hessmap.results.record import Record

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum(Record):
    """Eigenvalues in descending order, how they were found, and how far to trust them.

    ``residuals`` holds ||H v - lambda v|| per eigenpair where vectors were asked for (else it is empty);
    ``num_zeros`` counts exact zeros that a reduction removed and that ``eigenvalues`` holds as 0.0.
    ``scale`` is the norm that thresholds are relative to (of the loss Hessian, for all three Hessians).
    """

    eigenvalues: Floats
    method: str
    converged: bool
    residuals: Floats
    scale: float
    num_zeros: int = 0
    eigenvectors: Floats | None = field(default=None, compare=False)
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = ("eigenvalues", "method", "converged", "scale")
