"""Progress in the terminal: a spinner or a bar on standard error, and where asked for a line for every step.

A program that started this one and passed it a descriptor in ``HESSMAP_PROGRESS`` is told the same there, as JSON, one
object a line: {"step": .., "total": .., "done": .., "note": ..}.
"""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Display
from rich.text import Text

from hessmap.progress import Progress, register_progress

PROGRESS_VARIABLE = "HESSMAP_PROGRESS"
_drawing = threading.Lock()  # one display at a time: work inside of shown work is not shown


class TerminalProgress(Progress):
    """Shows progress where standard error is a terminal.

    Args:
        console: Console to draw on. Default: standard error.
        keeps_steps: Whether every step that has ended is printed with its seconds, also where there is no terminal.
            Defaults to False.
    """

    def __init__(self, console: Console | None = None, keeps_steps: bool = False) -> None:
        self._console = console or Console(stderr=True, markup=False, highlight=False)
        self._keeps_steps = keeps_steps
        self._display: Display | None = None
        self._step = ""
        self._started = 0.0
        self._total: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        else:
            self._erase()

    def start(self, step: str, total: int | None = None) -> None:
        self.finish()
        self._step, self._started, self._total = step, time.monotonic(), total
        self._tell(0, "")
        if self._console.is_terminal and _drawing.acquire(blocking=False):
            self._display = Display(*_columns(total), console=self._console, transient=True)
            self._display.add_task(step, total=total, note="")
            self._display.start()

    def _tell(self, done: int, note: str) -> None:
        """Tell the program that watches, if there is one; where it is gone the work goes on."""
        watcher = os.environ.get(PROGRESS_VARIABLE, "")
        if watcher.isdigit():
            line = json.dumps({"step": self._step, "total": self._total, "done": done, "note": note}) + "\n"
            with suppress(OSError):
                os.write(int(watcher), line.encode())

    def advance(self, done: int, note: str = "") -> None:
        self._tell(done, note)
        if self._display is not None:
            self._display.update(self._display.task_ids[0], completed=done, note=note)

    def message(self, text: str) -> None:
        self._console.print(text)

    def remark(self, text: str) -> None:
        if self._console.is_terminal or self._console.is_jupyter:
            self._console.print(text)

    def finish(self) -> None:
        self._erase()
        if self._step and self._keeps_steps:
            seconds = time.monotonic() - self._started
            self._console.print(Text.assemble(self._step, (f" ({seconds:.1f} s)" if seconds >= 0.05 else "", "dim")))
        self._step = ""

    def _erase(self) -> None:
        if self._display is not None:
            self._display.stop()
            self._display = None
            _drawing.release()


def _columns(total: int | None) -> tuple[ProgressColumn, ...]:
    step = TextColumn("{task.description}", markup=False)
    note = TextColumn("{task.fields[note]}", markup=False)
    if total is None:
        return SpinnerColumn(), step, note
    return step, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), note


register_progress(TerminalProgress)
