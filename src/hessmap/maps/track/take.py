"""From a model at one step to a point that is stored, its time counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from hessmap.maps.track.kept import KeptTrack
from hessmap.maps.track.pace import Pace
from hessmap.maps.track.point import Measured, measured_point
from hessmap.maps.track.settings import TrackSettings
from hessmap.maps.track.subject import Subject, require_same_data


def take_point(
    kept: KeptTrack,
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
        require_same_data(problem, kept.track.data_hash)
        found = measured_point(problem, settings, step, start=start, learning_rate=learning_rate)
        weights_hash = subject.weights_hash()
    point = replace(
        found.point, weights_hash=weights_hash, seconds=seconds, cost=pace.last_cost or 0.0, spent=pace.spent
    )
    kept.add(point, pace.seconds, pace.spent)
    return found._replace(point=point)
