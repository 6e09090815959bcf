"""The loss on lines and planes through parameters, beside its quadratic model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from hessmap.records.provenance import Provenance
from hessmap.records.record import Record

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class LossBarrier(Record):
    """How far the loss between two models rises above the straight line between their losses.

    Attributes:
        height: max over the grid of L(t) - (1 - t) L(0) - t L(1), t from 0 (the problem's model) to 1 (the other one).
        position: The t of that maximum.
        start: L(0).
        end: L(1).
        spacing: Distance of the grid's points in t.
    """

    height: float
    position: float
    start: float
    end: float
    spacing: float
    summary_fields: ClassVar[tuple[str, ...]] = ("height", "position", "start", "end")


@dataclass(frozen=True, eq=False, repr=False)
class LossPlane(Record):
    """The loss at parameters + D a for coordinates a on a grid, and its quadratic model.

    The model is risk + g.Da + a^T D^T H D a / 2, with the gradient g and the Hessian H of the loss.

    Attributes:
        directions: "sharpest", "random", "models" or "vectors".
        labels: What each axis is.
        coordinates: Grid of every axis, one or two arrays.
        loss: Loss on the grid: (points,) or (points of the first axis, points of the second axis).
        quadratic: The quadratic model on the same grid; None where buffers of two models differ, because the model
            describes parameters alone.
        explained: 1 - (sum of squared differences from the quadratic model) / (sum of squared differences of the loss
            from its mean), over the finite points of the grid; 1 where the loss is quadratic, negative where a
            constant would fit better; None without a quadratic model or for a constant loss.
        gradient: D^T g.
        curvature: D^T H D.
        norms: Norm of every direction: 1 for "sharpest" and "random".
        orthogonality_error: Largest entry of |D^T D - I| for "sharpest" and "random"; None for given directions.
        barrier: Barrier towards the other model; None unless the direction is one other model.
        risk: Loss at the problem's own parameters.
        num_not_finite: Grid points whose loss is infinite or NaN.
        converged: Whether the eigenvectors of "sharpest" converged; None for other directions.
        num_samples: Number of samples of the loss.
        seed: Seed of random directions and of the eigenvectors' start.
        provenance: Versions, data and notes.
    """

    directions: str
    labels: tuple[str, ...]
    coordinates: tuple[Floats, ...]
    loss: Floats
    quadratic: Floats | None
    explained: float | None
    gradient: Floats
    curvature: Floats
    norms: Floats
    orthogonality_error: float | None
    barrier: LossBarrier | None
    risk: float
    num_not_finite: int
    converged: bool | None
    num_samples: int
    seed: int
    provenance: Provenance = field(compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = ("directions", "labels", "risk", "explained", "barrier")
