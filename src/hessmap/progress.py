"""Progress of long work. Code that reports to a `Progress` does not depend on terminals.

The package `views` registers the class that draws in a terminal. Work that ends within two seconds is never shown.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module

PATIENCE_SECONDS = 2.0
_is_on = True
_make_visible: Callable[[], Progress] | None = None


class Progress:
    """Receives reports on the steps of long work; this base class shows nothing."""

    def start(self, step: str, total: int | None = None) -> None:
        """Begin a step of ``total`` parts (None: unknown); the previous step has ended."""

    def advance(self, done: int, note: str = "") -> None:
        """Report how many parts of the step are done, with a note to show beside them."""

    def message(self, text: str) -> None:
        """Show a message at once, also where there is no terminal."""

    def remark(self, text: str) -> None:
        """Show an optional message."""

    def finish(self) -> None:
        """End the last step."""


class LateProgress(Progress):
    """Shows work once it has taken ``patience`` seconds; shorter work is never shown.

    Args:
        make_visible: Makes the progress that is shown, when the time has come.
        patience: Seconds before anything is shown. Defaults to 2.
        clock: Current time in seconds. Defaults to ``time.monotonic``.
    """

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
    """Switch the display of progress in the terminal on or off, for all work that starts afterwards.

    Args:
        is_on: Whether work of more than two seconds is shown. Progress is on when hessmap is imported.

    Example:
        >>> progress(False)
        >>> progress()
    """
    global _is_on
    _is_on = is_on


def register_progress(make_visible: Callable[[], Progress]) -> None:
    """Set the class or function that makes the visible progress.

    Args:
        make_visible: Called without arguments when work has taken long enough to be shown.
    """
    global _make_visible
    _make_visible = make_visible


def new_progress() -> Progress:
    """Create the receiver for the reports of new work.

    Returns:
        Progress: One that shows work of more than two seconds or, if progress is switched off, nothing.
    """
    return LateProgress(_visible_progress) if _is_on else Progress()


def _visible_progress() -> Progress:
    if _make_visible is None:
        state = random.getstate()  # rich draws numbers when it is imported, and the state is the user's
        import_module("hessmap.views.progress")  # registers itself: the one way up, by name
        random.setstate(state)
    assert _make_visible is not None
    return _make_visible()


class Work:
    """Long work made of matrix-vector products: the current step, the products done, and an estimate of the time.

    Args:
        step: Name of the first step.
        shown: Receiver of the reports.
        clock: Current time in seconds. Defaults to ``time.monotonic``.
    """

    def __init__(self, step: str, shown: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self.shown = shown
        self._step = step
        self._clock = clock
        self._total: int | None = None
        self._plan = ""
        self._done = 0
        self._started = clock()
        shown.start(step)

    def start(self, step: str) -> None:
        """Begin another step."""
        self._step, self._total, self._done = step, None, 0
        self.shown.start(step)

    def expect(self, total: int, held: str = "") -> None:
        """Set the largest number of products of this step, or a predicted one with ``held``, the memory of vectors."""
        self._total, self._done, self._started = total, 0, self._clock()
        self._plan = f"about {total:,} products, {held} of vectors" if held else f"at most {total:,} products"
        self.shown.start(self._step, total)

    def add(self, products: int) -> None:
        """Count further products; the first ones give the estimate of the time for all."""
        is_first, self._done = self._done == 0, self._done + products
        if self._total is not None and is_first:
            expected = (self._clock() - self._started) / products * self._total
            if expected > PATIENCE_SECONDS:
                self.shown.remark(f"{self._step}: {self._plan}, about {expected:.2g} s")
        self.shown.advance(self._done, "" if self._total is not None else f"{self._done:,} products")


_work: ContextVar[Work | None] = ContextVar("work", default=None)


@contextmanager
def shown_work(step: str) -> Iterator[Work]:
    """Report the work of a ``with`` block as one step; nested blocks report to the outermost one.

    Args:
        step: Name of the work, as it is displayed.

    Yields:
        Work: Receiver of the numbers of products.
    """
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


def set_progress_total(total: int, held: str = "") -> None:
    """Set the largest number of products that the current work will make; without shown work nothing happens.

    Args:
        total: Number of products.
        held: Memory of the vectors of the work, as text; the number of products is a prediction then. Defaults to "".
    """
    work = _work.get()
    if work is not None:
        work.expect(total, held)


def report_products(count: int) -> None:
    """Count products of the current work; without shown work nothing happens.

    Args:
        count: Number of products made since the last call.
    """
    work = _work.get()
    if work is not None:
        work.add(count)
