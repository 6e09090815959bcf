"""When to measure, so that measuring takes no more than its share of the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hessmap.errors import require


class Pace:
    """A clock that counts the time of a training and what measuring takes of it.

    The first measurement is due at once. Each later one is due when, if it costs what the last one did, all of them
    together stay within the share, and when the share of the time since the last one is as long as that one took: a
    training that was paused is not followed by a burst. ``seconds`` and ``spent`` may start where an interrupted
    training left them.
    """

    def __init__(
        self,
        share: float | None,
        seconds: float = 0.0,
        spent: float = 0.0,
        last_cost: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        must = "share must lie above 0 and at most at 1, the part of the time that measuring may take"
        require(share is None or 0 < share <= 1, must, f"got {share}", "Give 0.1 for a tenth")
        self.share = share
        self.spent = spent
        self.last_cost = last_cost
        self._clock = clock
        self._start = clock() - seconds
        self._paid_since = clock()

    @property
    def seconds(self) -> float:
        """The time since the start of the training, measuring included."""
        return self._clock() - self._start

    @property
    def is_due(self) -> bool:
        if self.share is None or self.last_cost is None:
            return True
        expected = self.last_cost
        is_paid = self._clock() - self._paid_since >= expected * (1 / self.share - 1)
        return is_paid and self.spent + expected <= self.share * (self.seconds + expected)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Count what is done inside as measuring, also if it fails."""
        start = self._clock()
        try:
            yield
        finally:
            self._paid_since = self._clock()
            self.last_cost = self._paid_since - start
            self.spent += self.last_cost
