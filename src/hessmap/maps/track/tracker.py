"""The tracker: called at every step of a training, it measures when its share of the time allows it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self, SupportsIndex

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hessmap.errors import checked_count, require
from hessmap.losses import AnyLoss
from hessmap.maps.track.callbacks import hugging_face_callback, lightning_callback
from hessmap.maps.track.pace import Pace
from hessmap.maps.track.point import (
    QUANTITIES,
    Measured,
    Quantity,
    StoredTrack,
    TrackSettings,
    measured_point,
    new_track,
    store_path,
    stored_track,
    track_name,
)
from hessmap.maps.track.subject import Subject, require_same_data
from hessmap.problem import Forward, Objective
from hessmap.records import CurvatureTrack, Part, TrackPoint


class Tracker:
    """Curvature along a training: ``tracker(step)`` after every step of any loop, or a callback of a trainer of Hugging
    Face or Lightning.

    It measures at the first call, and from then on whenever another measurement keeps the time spent on measuring
    within ``share`` of the whole; ``share_reached`` says what it came to. Only one measurement can exceed the share:
    the first of a training that is too short to pay for it. ``share`` None measures at every call, and
    ``tracker.measure(step)`` now, whatever it costs.

    A point holds risk, gradient norm, the ``count`` largest eigenvalues of the Hessian (started from the eigenvectors
    of the point before), the share of the gradient in their space, and the trace with its standard error. Every point
    is written to the ``store`` (the file of studies and maps) under ``name`` when it is made. ``resume`` goes on with
    a stored track: points from the first step of the new calls on are measured anew. ``replace`` forgets it.

    ``data`` is (inputs, targets) or a loader of which every pass gives the same samples; better some hundred fixed
    samples than the whole set. The model is measured in evaluation mode and stays as it is: mode, gradients, buffers
    and random state. The other options are those of ``Problem``.

    >>> import hessmap as hm
    >>> model, data = hm.FullyConnected((6, 4, 3)).build(seed=0), hm.datasets.gaussian(30, 6, output_dim=3)
    >>> tracker = Tracker(model, "squared", data, share=None, count=2)
    >>> for step in range(2):
    ...     _ = tracker(step)
    >>> [point.step for point in tracker.track.points]
    [0, 1]
    """

    def __init__(
        self,
        model: nn.Module,
        loss: AnyLoss | None = None,
        data: Any = None,
        *,
        objective: Objective | None = None,
        name: str | None = None,
        store: str | os.PathLike[str] | None = None,
        share: float | None = 0.1,
        quantities: Sequence[Quantity] = QUANTITIES,
        count: int = 5,
        part: Part = "loss",
        tolerance: float = 1e-2,
        max_products: int = 500,
        trace_error: float = 0.05,
        max_probes: int = 64,
        seed: int = 0,
        resume: bool = False,
        replace: bool = False,
        forward: Forward | None = None,
        parameters: str | Sequence[str] | None = None,
        weights: Tensor | None = None,
        l2: float = 0.0,
        dtype: torch.dtype | None = None,
        memory_budget: int = 2**30,
    ) -> None:
        self.settings = TrackSettings(
            tuple(quantities), part, count, tolerance, max_products, trace_error, max_probes, seed
        )
        options = {
            "objective": objective,
            "forward": forward,
            "parameters": parameters,
            "weights": weights,
            "l2": l2,
            "dtype": dtype,
        }
        self.subject = Subject(model, loss, data, {**options, "memory_budget": memory_budget})
        path = store_path(store)
        Pace(share)  # refuses a wrong share before any work
        stored_as = track_name(name, path, resume, replace)
        made = new_track(stored_as, self.subject.problem(), self.settings, share)
        self._stored = stored_track(made, path, resume, replace)
        last = self._stored.points[-1].cost if self._stored.points else None
        self.pace = Pace(share, self._stored.track.seconds, self._stored.track.spent, last)
        self._is_resumed = bool(self._stored.points)
        self._eigenvectors: NDArray[Any] | None = None

    def __call__(self, step: SupportsIndex, *, learning_rate: float | None = None) -> TrackPoint | None:
        """Measure if it is time to; the point, or None. ``learning_rate`` is drawn beside the sharpness."""
        self._resume_at(checked_count("step", step, 0))
        return self.measure(step, learning_rate=learning_rate) if self.pace.is_due else None

    def measure(self, step: SupportsIndex, *, learning_rate: float | None = None) -> TrackPoint:
        """Measure now and store the point."""
        at = checked_count("step", step, 0)
        self._resume_at(at)
        points = self._stored.points
        must, got = "the steps of a track must grow", f"step {at} follows step {points[-1].step if points else at}"
        require(not points or at > points[-1].step, must, got)
        made = measure_and_store(
            self._stored,
            self.pace,
            self.subject,
            self.settings,
            at,
            start=self._eigenvectors,
            learning_rate=learning_rate,
        )
        self._eigenvectors = made.eigenvectors
        return made.point

    def hugging_face_callback(self) -> Any:
        """This tracker for a Trainer of Hugging Face: ``Trainer(.., callbacks=[tracker.hugging_face_callback()])``."""
        return hugging_face_callback(self)

    def lightning_callback(self) -> Any:
        """This tracker for a Trainer of Lightning: ``Trainer(.., callbacks=[tracker.lightning_callback()])``."""
        return lightning_callback(self)

    @property
    def track(self) -> CurvatureTrack:
        """The points so far, with the times up to now."""
        return replace(self._stored.track, seconds=self.pace.seconds, spent=self.pace.spent)

    @property
    def share_reached(self) -> float:
        """The part of the time until now that went into measuring."""
        return self.track.share_reached

    def close(self) -> None:
        """Write how long the training was watched; every point is stored already."""
        self._stored.set_times(self.pace.seconds, self.pace.spent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _resume_at(self, step: int) -> None:
        """At the first step after a track was taken up: what was measured from there on belongs to a lost training."""
        if not self._is_resumed:
            return
        first = self._stored.points[0].step
        must = "a training that goes on must have passed the first point of its track"
        remedy = "Say replace=True to forget the stored track"
        require(step > first, must, f"step {step} was given, and the first point is at step {first}", remedy)
        self._stored.drop_from(step)
        self._is_resumed = False

    def __repr__(self) -> str:
        made = self.track
        spent = f"{made.share_reached:.1%} of the time" + ("" if made.share is None else f" (at most {made.share:.0%})")
        return f"Tracker('{made.name}' in {self._stored.store}: {made.num_points} points, {spent})"


def measure_and_store(
    stored: StoredTrack,
    pace: Pace,
    subject: Subject,
    settings: TrackSettings,
    step: int,
    *,
    start: NDArray[Any] | None = None,
    learning_rate: float | None = None,
) -> Measured:
    """Measure the subject as it is now and add the point to the track."""
    seconds = pace.seconds
    with pace.measuring():
        problem = subject.problem()
        require_same_data(problem, stored.track.data_hash)
        found = measured_point(problem, settings, step, start=start, learning_rate=learning_rate)
        weights_hash = subject.weights_hash()
    point = replace(
        found.point, weights_hash=weights_hash, seconds=seconds, cost=pace.last_cost or 0.0, spent=pace.spent
    )
    stored.add(point, pace.seconds, pace.spent)
    return found._replace(point=point)
