"""What is being done, step by step, on stderr: a spinner in a terminal, a line per step anywhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status


class Steps:
    """Call it with the sentence of each step; the step before is then done, and its seconds are printed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = Status("", console=console)
        self._step = ""
        self._started = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __call__(self, step: str) -> None:
        self._finish()
        self._step, self._started = step, time.monotonic()
        self._status.update(step)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.stop()
        if error is None:
            self._finish()

    def _finish(self) -> None:
        if self._step:
            seconds = time.monotonic() - self._started
            taken = f" [dim]({seconds:.1f} s)[/dim]" if seconds >= 0.05 else ""
            self._console.print(f"{self._step}{taken}", highlight=False)
            self._step = ""
