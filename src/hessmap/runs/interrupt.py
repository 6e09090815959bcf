"""Ctrl-C: the first one lets the cases under way finish, the second one leaves at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def finishing_first(on_first: Callable[[], None]) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second raises KeyboardInterrupt.

    Signals belong to the main thread: elsewhere the event is never set.
    """
    stop = threading.Event()

    def handle(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        # Not here: a handler may interrupt a write to the terminal, and must not write to it again.
        threading.Thread(target=on_first).start()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
