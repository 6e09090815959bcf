"""How long a run still takes: the predicted seconds of its cases, corrected by those that are done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

_CASES_PER_LANE = 20  # from here on the clock on the wall is the better witness


class Remaining:
    """Time left for cases of different predicted cost on some lanes.

    At first the predictions are scaled by predicted against actual seconds of the finished cases, and divided by the
    lanes. After many cases the wall clock decides, which also sees what lies between the cases.
    """

    def __init__(self, predicted: Mapping[str, float], clock: Callable[[], float] = time.monotonic) -> None:
        self._predicted = dict(predicted)
        self._clock = clock
        self._started = clock()
        self._work_left = sum(self._predicted.values())
        self._work_done = 0.0
        self._work_measured = 0.0
        self._seconds_measured = 0.0
        self._num_done = 0

    def finished(self, key: str, seconds: float, is_done: bool = True) -> None:
        """Count a case; one that failed says nothing about the speed of others."""
        work = self._predicted.pop(key, 0.0)
        self._work_left -= work
        self._work_done += work
        self._num_done += 1
        if is_done:
            self._work_measured += work
            self._seconds_measured += seconds

    def seconds_of(self, key: str) -> float | None:
        """The corrected prediction for one case; None before a case has finished."""
        return self._predicted.get(key, 0.0) * self._scale if self._work_measured > 0 else None

    @property
    def num_left(self) -> int:
        return len(self._predicted)

    def seconds(self, lanes: int) -> float | None:
        """The time left when so many cases are measured at a time; None before anything is known."""
        if not self._predicted:
            return 0.0
        if self._num_done >= _CASES_PER_LANE * lanes and self._work_done > 0:
            return self._work_left / self._work_done * (self._clock() - self._started)
        if self._work_measured <= 0:
            return None
        return self._scale * self._work_left / min(lanes, len(self._predicted))

    @property
    def _scale(self) -> float:
        return self._seconds_measured / self._work_measured
