"""How long work is shown while it goes on, or not: who reports to a `Progress` knows nothing of terminals.

The room `views` registers what draws in a terminal. Work that ends within two seconds is never shown.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Protocol

PATIENCE_SECONDS = 2.0
_is_on = True
_make_visible: Callable[[], Progress] | None = None


class Progress(Protocol):
    """Shows work that goes on, one step after the other."""

    def start(self, step: str, total: int | None = None) -> None:
        """Begin a step of so many parts (None: nobody knows); the step before has ended."""

    def advance(self, done: int, note: str = "") -> None:
        """So many parts of the step are done; the note is shown beside them."""

    def message(self, text: str) -> None:
        """Say something at once that must not be missed."""

    def remark(self, text: str) -> None:
        """Say something to people who watch; nothing is lost where nobody does."""

    def finish(self) -> None:
        """All steps have ended."""


class NoProgress:
    """Shows nothing."""

    def start(self, step: str, total: int | None = None) -> None:
        pass

    def advance(self, done: int, note: str = "") -> None:
        pass

    def message(self, text: str) -> None:
        pass

    def remark(self, text: str) -> None:
        pass

    def finish(self) -> None:
        pass


class LateProgress:
    """Shows work from the moment on at which it has taken some seconds; what is short stays unseen."""

    def __init__(
        self,
        make_visible: Callable[[], Progress],
        patience: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_visible = make_visible
        self._visible: Progress | None = None
        self._clock = clock
        self._end_of_patience = clock() + patience
        self._step: tuple[str, int | None] | None = None

    def start(self, step: str, total: int | None = None) -> None:
        self._step = (step, total)
        if self._visible is not None:
            self._visible.start(step, total)
        elif self._clock() >= self._end_of_patience:
            self._show()

    def advance(self, done: int, note: str = "") -> None:
        if self._visible is None and self._clock() < self._end_of_patience:
            return
        self._show().advance(done, note)

    def message(self, text: str) -> None:
        self._show().message(text)

    def remark(self, text: str) -> None:
        self._show().remark(text)

    def finish(self) -> None:
        if self._visible is not None:
            self._visible.finish()

    def _show(self) -> Progress:
        if self._visible is None:
            self._visible = self._make_visible()
            if self._step is not None:
                self._visible.start(*self._step)
        return self._visible


def progress(is_on: bool = True) -> None:
    """Show the progress of long work in the terminal from now on (the default), or show nothing."""
    global _is_on
    _is_on = is_on


def register_progress(make_visible: Callable[[], Progress]) -> None:
    """Say what shows progress to people."""
    global _make_visible
    _make_visible = make_visible


def new_progress() -> Progress:
    """What new work reports to: shows nothing where progress is switched off, and nothing of what is short."""
    return LateProgress(_visible_progress) if _is_on else NoProgress()


def _visible_progress() -> Progress:
    if _make_visible is None:
        state = random.getstate()  # rich draws numbers when it is imported, and the state is the user's
        import_module("hessmap.views.progress")  # registers itself: the one way up, by name
        random.setstate(state)
    assert _make_visible is not None
    return _make_visible()


class Work:
    """Long work made of products: what it is at, how many are done, and at its beginning what all will take."""

    def __init__(self, step: str, shown: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self.shown = shown
        self._step = step
        self._clock = clock
        self._total: int | None = None
        self._done = 0
        self._started = clock()
        shown.start(step)

    def start(self, step: str) -> None:
        """Begin another step."""
        self._step, self._total, self._done = step, None, 0
        self.shown.start(step)

    def expect(self, total: int) -> None:
        """The step will take so many products at most."""
        self._total, self._done, self._started = total, 0, self._clock()
        self.shown.start(self._step, total)

    def add(self, products: int) -> None:
        """So many more are done; the first ones tell what all will take."""
        is_first, self._done = self._done == 0, self._done + products
        if self._total is not None and is_first:
            expected = (self._clock() - self._started) / products * self._total
            if expected > PATIENCE_SECONDS:
                self.shown.remark(f"{self._step}: at most {self._total:,} products, about {expected:.2g} s")
        self.shown.advance(self._done, "" if self._total is not None else f"{self._done:,} products")


_work: ContextVar[Work | None] = ContextVar("work", default=None)


@contextmanager
def shown_work(step: str) -> Iterator[Work]:
    """Show what is done inside, if it is long; work inside of other work belongs to that."""
    outer = _work.get()
    if outer is not None:
        yield outer
        return
    work = Work(step, new_progress())
    token = _work.set(work)
    try:
        yield work
    finally:
        _work.reset(token)
        work.shown.finish()


def expect_products(total: int) -> None:
    """Say how many products the work at hand will make at most."""
    work = _work.get()
    if work is not None:
        work.expect(total)


def report_products(count: int) -> None:
    """Say that so many more are made."""
    work = _work.get()
    if work is not None:
        work.add(count)
