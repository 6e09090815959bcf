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

Floats = NDArray[np.float64]
_LONG = 3  # times the usual distance between points makes a gap


@dataclass(frozen=True, eq=False, repr=False)
class TrackPoint(Record):
    """What was measured of a network at one step of its training.

    ``eigenvalues`` are the largest of the Hessian, in descending order, with their ``residuals``; both are empty where
    none were asked for, and ``converged`` is about them. ``seconds`` is the time of the training up to here, ``cost``
    what this point took and ``spent`` what all points up to it took, all three in seconds. ``weights_hash`` tells the
    weights apart.
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


@dataclass(frozen=True, eq=False, repr=False)
class CurvatureTrack(Record):
    """The points of one training in the order of their steps, and how they were measured.

    ``share`` is the part of the time that measuring was allowed to take (None: as much as it needed), ``seconds`` the
    time of the training as far as it was watched, ``spent`` the part of it that went into measuring.
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

    def column(self, name: str) -> Floats:
        """One number of every point, nan where a point has none: "risk", "sharpness", "trace", "gradient_overlap"."""
        values = [getattr(point, name) for point in self.points]
        return np.array([np.nan if value is None else getattr(value, "value", value) for value in values], dtype=float)
