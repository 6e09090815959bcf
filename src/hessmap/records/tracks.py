"""The curvature of a network along its training: a point for each moment that was measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hessmap.records.provenance import Provenance
from hessmap.records.ranks import Part
from hessmap.records.record import Record
from hessmap.records.spectra import GradientOverlap, SpectralEstimate
from hessmap.records.steps import StepReport

Floats = NDArray[np.float64]
_LONG = 3  # times the usual distance between points makes a gap


@dataclass(frozen=True, eq=False, repr=False)
class TrackPoint(Record):
    """The measurements of a network at one step of its training.

    Attributes:
        step: Step of the training.
        risk: Loss on the tracked data, including the l2 penalty of the problem.
        gradient_norm: Euclidean norm of the gradient of ``risk``.
        eigenvalues: Largest eigenvalues of the Hessian, in descending order; empty if they were not requested.
        residuals: ||H v - lambda v|| of each eigenpair.
        converged: Whether all eigenpairs converged; True if none were requested.
        trace: Estimate of the trace; None if it was not requested.
        gradient_overlap: Share of the gradient in the leading eigenvectors; None if it was not requested.
        learning_rate: Learning rate at this step; None if unknown.
        num_products: Matrix-vector products that the point took.
        is_warm: Whether the iteration started from the eigenvectors of an earlier point.
        weights_hash: Hash of parameters and buffers.
        seconds: Seconds of training up to this point, earlier measurements included.
        cost: Seconds that this point took.
        spent: Seconds that all points up to and including this one took.
        step_report: Report of the optimiser's next step. Default: None, the tracker has no optimiser.
    """

    step: int
    risk: float
    gradient_norm: float
    eigenvalues: Floats
    residuals: Floats
    converged: bool
    trace: SpectralEstimate | None
    gradient_overlap: GradientOverlap | None
    learning_rate: float | None
    num_products: int
    is_warm: bool
    weights_hash: str
    seconds: float = field(compare=False)
    cost: float = field(compare=False)
    spent: float = field(compare=False)
    step_report: StepReport | None = None
    frame_properties: ClassVar[tuple[str, ...]] = ("sharpness", "stability_ratio")
    summary_fields: ClassVar[tuple[str, ...]] = ("step", "risk", "sharpness", "trace", "num_products", "cost")

    @property
    def sharpness(self) -> float | None:
        """The largest eigenvalue; None where no eigenvalue was asked for."""
        return float(self.eigenvalues[0]) if self.eigenvalues.size else None

    @property
    def largest_stable_step(self) -> float | None:
        """2 / sharpness: a larger step of gradient descent grows along the sharpest direction."""
        if self.sharpness is None:
            return None
        return 2 / self.sharpness if self.sharpness > 0 else inf

    @property
    def stability_ratio(self) -> float | None:
        """The preconditioned sharpness over the stability threshold of the optimiser in use; None without one."""
        return None if self.step_report is None else self.step_report.stability_ratio

    @property
    def sharpness_threshold(self) -> float | None:
        """The stability threshold, where it applies to the plain sharpness: the preconditioner of the step is 1."""
        report = self.step_report
        if report is None or report.stability_threshold is None or report.preconditioned_sharpness is None:
            return None
        return report.stability_threshold.value if report.preconditioned_sharpness.value == self.sharpness else None


@dataclass(frozen=True, eq=False, repr=False)
class CurvatureTrack(Record):
    """The points of one training in the order of their steps, and how they were measured.

    Attributes:
        name: Name of the track in its store.
        network: Description of the network.
        loss: Name of the loss.
        part: The Hessian: "loss", "outer_product" or "functional".
        num_parameters: Number of parameters.
        num_samples: Number of samples that are measured on.
        data_hash: Fingerprint of these samples, independent of their order.
        share: Largest part of the time that measuring may take; None for no limit.
        seconds: Seconds of training that were tracked, measurements included.
        spent: Seconds of them that measurements took.
        settings: Settings of the measurements and of the problem (l2, parameters, number format, available samples).
        points: The points.
        provenance: Versions, number format, seed and data. Default: None, as for a track loaded from a store.
    """

    name: str
    network: str
    loss: str
    part: Part
    num_parameters: int
    num_samples: int
    data_hash: str
    share: float | None
    seconds: float = field(compare=False)
    spent: float = field(compare=False)
    settings: dict[str, object]
    points: tuple[TrackPoint, ...]
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = ("name", "network", "loss", "num_points", "share_reached")

    @property
    def num_points(self) -> int:
        return len(self.points)

    @property
    def share_reached(self) -> float:
        """The part of the time that went into measuring."""
        return self.spent / self.seconds if self.seconds > 0 else 0.0

    @property
    def gaps(self) -> tuple[tuple[int, int], ...]:
        """Neighbouring steps more than three times as far apart as usual: nothing is known of what lies between."""
        steps = [point.step for point in self.points]
        distances = sorted(right - left for left, right in pairwise(steps))
        if len(distances) < 2:
            return ()
        usual = distances[(len(distances) - 1) // 2]
        return tuple((left, right) for left, right in pairwise(steps) if right - left > _LONG * usual)

    @property
    def crossings(self) -> tuple[tuple[int, bool], ...]:
        """Points at which the preconditioned sharpness first is on the other side of the stability threshold: the step,
        and whether it is above. A track that begins above has its first point among them."""
        found: list[tuple[int, bool]] = []
        is_above = False
        for point in self.points:
            if point.stability_ratio is not None and (point.stability_ratio >= 1) != is_above:
                is_above = not is_above
                found.append((point.step, is_above))
        return tuple(found)

    def column(self, name: str) -> Floats:
        """One number of every point, nan where a point has none: "risk", "sharpness", "trace", "gradient_overlap", or a
        quantity of its step report, as "preconditioned_sharpness" and "stability_threshold"."""
        values = [
            getattr(point, name) if hasattr(point, name) else getattr(point.step_report, name, None)
            for point in self.points
        ]
        return np.array([np.nan if value is None else getattr(value, "value", value) for value in values], dtype=float)
