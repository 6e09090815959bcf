"""How long work is shown: not before two seconds, not where it is switched off, one display at a time."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from rich.console import Console

import hessmap as hm
from hessmap.progress import LateProgress, Progress, new_progress
from hessmap.views.progress import TerminalProgress


class Reports(Progress):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.reports: list[tuple[Any, ...]] = []

    def start(self, step: str, total: int | None = None) -> None:
        self.reports.append(("start", step, total))

    def advance(self, done: int, note: str = "") -> None:
        self.reports.append(("advance", done, note))

    def message(self, text: str) -> None:
        self.reports.append(("message", text))

    def finish(self) -> None:
        self.reports.append(("finish",))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def _switched_on_again() -> Iterator[None]:
    yield
    hm.progress(True)


def test_work_is_shown_from_the_moment_on_at_which_it_is_long() -> None:
    clock, reports = Clock(), Reports()
    progress = LateProgress(lambda: reports, patience=2.0, clock=clock)
    progress.start("products", total=10)
    clock.now = 1.9
    progress.advance(4)
    assert reports.reports == []
    clock.now = 2.0
    progress.advance(5, "half")
    progress.start("eigenvalues")
    progress.finish()
    assert reports.reports == [
        ("start", "products", 10),
        ("advance", 5, "half"),
        ("start", "eigenvalues", None),
        ("finish",),
    ]


def test_short_work_makes_nothing_at_all() -> None:
    def make() -> Reports:
        raise AssertionError("short work was shown")

    progress = LateProgress(make, clock=Clock())
    progress.start("products", total=10)
    progress.advance(10)
    progress.finish()


def test_a_message_does_not_wait() -> None:
    reports = Reports()
    progress = LateProgress(lambda: reports, clock=Clock())
    progress.start("cases", total=3)
    progress.message("stopping")
    assert reports.reports == [("start", "cases", 3), ("message", "stopping")]


@pytest.mark.usefixtures("_switched_on_again")
def test_progress_can_be_switched_off_and_on() -> None:
    assert isinstance(new_progress(), LateProgress)
    hm.progress(False)
    assert type(new_progress()) is Progress
    hm.progress()
    assert isinstance(new_progress(), LateProgress)


def test_the_views_register_what_draws_when_it_is_first_needed() -> None:
    program = (
        "import sys, hessmap.progress as _; from hessmap.progress import LateProgress, _visible_progress\n"
        "assert 'rich' not in sys.modules\n"
        "print(type(_visible_progress()).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "TerminalProgress"


def console(is_terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=100, markup=False, highlight=False)


def text(drawn_on: Console) -> str:
    assert isinstance(drawn_on.file, io.StringIO)
    return drawn_on.file.getvalue()


def test_a_terminal_shows_the_step_how_far_it_is_and_the_note() -> None:
    shown_on = console(is_terminal=True)
    with TerminalProgress(shown_on) as progress:
        progress.start("products [/of] $x$", total=10)
        progress.advance(4, "bound [b]0.3")
    assert "products [/of] $x$" in text(shown_on)
    assert "4/10" in text(shown_on)
    assert "bound [b]0.3" in text(shown_on)


def test_nothing_is_drawn_into_a_pipe_unless_steps_are_kept() -> None:
    piped, kept = console(is_terminal=False), console(is_terminal=False)
    for progress in (TerminalProgress(piped), TerminalProgress(kept, keeps_steps=True)):
        with progress:
            progress.start("loading [/data]")
            progress.start("products", total=10)
            progress.advance(10)
    assert text(piped) == ""
    assert text(kept) == "loading [/data]\nproducts\n"


def test_a_step_that_raises_is_not_said_to_have_ended() -> None:
    kept = console(is_terminal=False)
    progress = TerminalProgress(kept, keeps_steps=True)
    with suppress(ArithmeticError), progress:
        progress.start("loading")
        progress.start("products")
        raise ArithmeticError
    assert text(kept) == "loading\n"


def test_work_inside_of_shown_work_is_not_drawn_over_it() -> None:
    outer, inner = console(is_terminal=True), console(is_terminal=True)
    with TerminalProgress(outer) as progress:
        progress.start("cases", total=2)
        with TerminalProgress(inner) as within:
            within.start("products", total=10)
            within.advance(3)
        progress.advance(1)
    assert text(inner) == ""
    assert "1/2" in text(outer)
    with TerminalProgress(inner) as within:
        within.start("products")
    assert "products" in text(inner)
