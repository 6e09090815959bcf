"""Who wants to see a run going on."""

from __future__ import annotations

from typing import Protocol

from hessmap.runs.store import Outcome
from hessmap.runs.study import Study


class Progress(Protocol):
    """Told what a run does, as it does it."""

    def started(self, study: Study, num_cases: int, num_pending: int, lanes: int) -> None: ...
    def advanced(self, outcome: Outcome, num_left: int, seconds_left: float | None) -> None: ...
    def stopping(self) -> None: ...


class Silence:
    """Nobody wants to see it."""

    def started(self, study: Study, num_cases: int, num_pending: int, lanes: int) -> None:
        pass

    def advanced(self, outcome: Outcome, num_left: int, seconds_left: float | None) -> None:
        pass

    def stopping(self) -> None:
        pass
