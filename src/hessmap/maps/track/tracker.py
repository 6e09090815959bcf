"""The tracker: called at every step of a training, it measures when its share of the time allows it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self, SupportsIndex

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hessmap.errors import checked_count, require, short_text
from hessmap.linalg import is_first_process
from hessmap.losses import AnyLoss
from hessmap.maps.track.callbacks import hugging_face_callback, lightning_callback
from hessmap.maps.track.log import Log, logged_values
from hessmap.maps.track.pace import Pace
from hessmap.maps.track.point import (
    DEFAULT_QUANTITIES,
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
from hessmap.maps.track.subset import NumSamples, chosen_data, passes_of_a_point
from hessmap.problem import Forward, Objective
from hessmap.records import CurvatureTrack, Part, TrackPoint


class Tracker:
    """Curvature along a training: ``tracker(step)`` after every step of any loop, or a callback of a trainer of Hugging
    Face or Lightning.

    It measures at the first call, and then whenever another measurement keeps the time spent on measuring within
    ``share`` of the whole; ``share_reached`` is the share so far. Only a training that is too short for its first point
    exceeds it. A point has risk, gradient norm, the largest eigenvalues (started from the previous eigenvectors), the
    share of the gradient in their span, the trace with its standard error, and, with an optimiser, the report of its
    next step. Every point is written to the store when it is made. The model is measured in evaluation mode; mode,
    gradients, buffers, random state and optimiser stay as they are.

    Args:
        model: The model that is trained.
        loss: As for ``Problem``.
        data: (inputs, targets), a data set, or a loader of which every pass gives the same samples.
        objective: As for ``Problem``, in the place of a loss.
        optimizer: The optimiser of the training. Defaults to none: then points have no step report, and no stability
            threshold is drawn.
        log: Called with the values of every point by name, and its step: ``wandb.log``, ``mlflow.log_metrics``,
            ``tensorboard_log(writer)``. Defaults to none.
        num_samples: Samples of the data that are measured, a seeded choice that stays the same. Defaults to "auto": so
            few that the first point takes about 5 % of the passes of an epoch, at least 16; data of at most 512
            samples, lists of batches and streams are used whole. "all" uses everything.
        name: Name of the track in the store. Defaults to the time.
        store: File of the store. Defaults to that of all maps.
        share: Part of the time that measuring may take; None measures at every call. Defaults to 0.1.
        quantities: What is measured, names of ``QUANTITIES``. Defaults to eigenvalues, gradient overlap, trace and,
            with an optimiser, the preconditioned sharpness.
        count: Number of eigenvalues. Defaults to 5.
        part: "loss" (default), "outer_product" or "functional".
        tolerance: Residual of eigenpairs relative to the norm. Defaults to 1e-2.
        max_products: Limit on products of eigenpairs. Defaults to 500.
        trace_error: Relative standard error of the trace. Defaults to 0.05.
        max_probes: Limit on probes of the trace. Defaults to 64.
        batch_size: Samples of a mini-batch, for batch sharpness and noise scale. Defaults to that of ``step_report``.
        seed: Seed of probes and of the choice of samples. Defaults to 0.
        resume: Continue a stored track: points from the first step of the new calls on are measured again.
        replace: Forget a stored track of that name.
        forward: As for ``Problem``.
        parameters: As for ``Problem``.
        weights: As for ``Problem``.
        l2: As for ``Problem``.
        dtype: As for ``Problem``.
        memory_budget: As for ``Problem``. Defaults to 1 GiB.

    Notes:
        Of the processes of a distributed training, calls of the first alone measure and write; ``measure`` measures
        everywhere, and only the first writes and logs.

    Example:
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
        optimizer: Any = None,
        log: Log | None = None,
        num_samples: NumSamples = "auto",
        name: str | None = None,
        store: str | os.PathLike[str] | None = None,
        share: float | None = 0.1,
        quantities: Sequence[Quantity] = DEFAULT_QUANTITIES,
        count: int = 5,
        part: Part = "loss",
        tolerance: float = 1e-2,
        max_products: int = 500,
        trace_error: float = 0.05,
        max_probes: int = 64,
        batch_size: int | None = None,
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
            tuple(quantities), part, count, tolerance, max_products, trace_error, max_probes, seed, batch_size
        )
        require(log is None or callable(log), "log must be a function of values and step", f"got {short_text(log)}")
        self.optimizer, self._log = optimizer, log
        passes = passes_of_a_point(self.settings, optimizer is not None)
        chosen = chosen_data(data, weights, num_samples, self.settings.seed, passes)
        options = {
            "objective": objective,
            "forward": forward,
            "parameters": parameters,
            "weights": chosen.weights,
            "l2": l2,
            "dtype": dtype,
        }
        self.subject = Subject(model, loss, chosen.data, {**options, "memory_budget": memory_budget})
        path, writes = store_path(store), is_first_process()
        Pace(share)  # refuses a wrong share before any work
        stored_as = track_name(name, path, resume, replace) if writes else str(name)
        made = new_track(stored_as, self.subject.problem(), self.settings, share, chosen.num_available)
        self._stored = stored_track(made, path, resume, replace) if writes else StoredTrack(made, path, writes=False)
        last = self._stored.points[-1].cost if self._stored.points else None
        self.pace = Pace(share, self._stored.track.seconds, self._stored.track.spent, last)
        self._is_resumed = bool(self._stored.points)
        self._eigenvectors: NDArray[Any] | None = None

    def __call__(self, step: SupportsIndex, *, learning_rate: float | None = None) -> TrackPoint | None:
        """Measure if it is time to, on the first rank of a distributed training.

        Args:
            step: The step of the training.
            learning_rate: Its learning rate, for the record. Defaults to that of the optimiser, if there is one.

        Returns:
            The point, or None.
        """
        if not self._stored.writes:
            return None
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
            optimizer=self.optimizer,
        )
        self._eigenvectors = made.eigenvectors
        if self._log is not None and self._stored.writes:
            self._log(logged_values(made.point), at)
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
    optimizer: Any = None,
) -> Measured:
    """Measure the subject as it is now and add the point to the track."""
    seconds = pace.seconds
    with pace.measuring():
        problem = subject.problem()
        require_same_data(problem, stored.track.data_hash)
        found = measured_point(problem, settings, step, start=start, learning_rate=learning_rate, optimizer=optimizer)
        weights_hash = subject.weights_hash()
    point = replace(
        found.point, weights_hash=weights_hash, seconds=seconds, cost=pace.last_cost or 0.0, spent=pace.spent
    )
    stored.add(point, pace.seconds, pace.spent)
    return found._replace(point=point)
