"""The map of a network whose Hessians are too large to be formed: estimates, layer by layer where they can be had."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from hessmap.results.estimates import DensityEstimate, SpectralEstimate
from hessmap.results.provenance import Provenance
from hessmap.results.record import Record
from hessmap.results.spectra import EigenpairsMeasurement


@dataclass(frozen=True, eq=False, repr=False)
class LayerEstimate(Record):
    """One layer, weights and biases together.

    ``curvature_share`` is its part of the trace of the outer-product Hessian (all shares sum to 1), known to
    ``share_error`` (a standard error; 0 where the diagonal is exact). ``direction_share`` is the part of the squared
    norm of the sharpest direction of the loss Hessian that lies in the layer.
    """

    name: str
    shape: str
    num_parameters: int
    curvature_share: float
    share_error: float
    direction_share: float


@dataclass(frozen=True, eq=False, repr=False)
class CurvatureEstimates(Record):
    """What products with the loss Hessian tell of a network on its data; ``reason`` says why no Hessian was formed.

    ``eigenpairs`` holds the largest eigenvalues with their residuals and whether they have converged; the first is the
    sharpness. There are no ranks: an estimate cannot tell a small eigenvalue from zero.
    """

    title: str
    description: str
    loss: str
    num_samples: int
    num_parameters: int
    risk: float
    gradient_norm: float
    eigenpairs: EigenpairsMeasurement
    trace: SpectralEstimate
    density: DensityEstimate
    layers: tuple[LayerEstimate, ...]
    verdicts: tuple[str, ...]
    reason: str
    notes: tuple[str, ...] = ()
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = ("title", "num_parameters", "risk", "sharpness", "verdicts", "reason")

    @property
    def sharpness(self) -> float:
        """The largest eigenvalue of the loss Hessian that was found."""
        return float(self.eigenpairs.eigenvalues[0])
