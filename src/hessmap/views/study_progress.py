"""The progress of a run in the terminal: how far, how fast, and how long still."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from hessmap.runs.store import Outcome
from hessmap.runs.study import Study


class ProgressBar:
    """Draws on standard error what a run reports; where that is no terminal, nothing is drawn."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console or Console(stderr=True),
            transient=True,
        )
        self._task: TaskID | None = None
        self._num_failed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def started(self, study: Study, num_cases: int, num_pending: int, lanes: int) -> None:
        if self._progress.console.is_terminal:
            self._progress.start()
        place = "1 worker" if lanes == 1 else f"{lanes} workers"
        self._task = self._progress.add_task(f"{study.name} ({place})", total=num_pending, left="")

    def advanced(self, outcome: Outcome, num_left: int, seconds_left: float | None) -> None:
        assert self._task is not None
        self._num_failed += not outcome.is_done
        failed = f", {self._num_failed} failed" if self._num_failed else ""
        self._progress.update(self._task, advance=1, left=f"{time_left(seconds_left)}{failed}")

    def stopping(self) -> None:
        self._progress.console.print("Finishing the cases under way; Ctrl-C again leaves at once.")


def time_left(seconds: float | None) -> str:
    """The time left in words, no finer than it is known.

    >>> time_left(None), time_left(3.2), time_left(100), time_left(4000)
    ('time left not known yet', 'a few seconds left', 'about 2 min left', 'about 1.1 h left')
    """
    if seconds is None:
        return "time left not known yet"
    if seconds < 10:
        return "a few seconds left"
    if seconds < 60:
        return f"about {round(seconds, -1):.0f} s left"
    if seconds < 3600:
        return f"about {seconds / 60:.0f} min left"
    return f"about {seconds / 3600:.1f} h left"
