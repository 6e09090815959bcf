"""How many threads a training uses: one for small models, where starting threads costs more than the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hessmap.errors import require

_SMALL_WORK = 2**24  # multiplications of a step, about 3 ms on one core: a rule of thumb, not a tuned value


@contextmanager
def threads(num_threads: int | None, num_multiplications: int) -> Iterator[None]:
    """Run with the given number of threads, None choosing by the work of a step; restore the old number after.

    >>> before = torch.get_num_threads()
    >>> with threads(None, num_multiplications=1000):
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    before = torch.get_num_threads()
    chosen = num_threads if num_threads is not None else 1 if num_multiplications < _SMALL_WORK else before
    require(chosen >= 1, "num_threads must be at least 1", f"got {num_threads}")
    torch.set_num_threads(chosen)
    try:
        yield
    finally:
        torch.set_num_threads(before)
