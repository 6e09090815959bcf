"""Memory that was written to before, kept for the next large array of its size.

A large array is given back to the system when nobody holds it any more, and a virtual machine may give it back to its
host (Linux: free page reporting). The first touch of the next one was then seen to take 1 to 4 ms a megabyte, as long
as finding the Hessian that is written there.

How many bytes there are, how many a problem may use, and a refusal that says what to do instead."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import HessmapError, TooLarge, number_or_none, require, sentence, short_text

_SMALLEST = 2**25  # bytes; what is smaller is kept by the allocator
_MOST = 2**29  # bytes that are kept at once


class TouchedMemory:
    """Arrays that nobody holds any more, up to ``most`` bytes of them, the latest ones."""

    def __init__(self, smallest: int = _SMALLEST, most: int = _MOST) -> None:
        self.smallest = smallest
        self.most = most
        self._free: list[NDArray[Any]] = []
        self._lock = RLock()  # an array may be dropped while another one is taken

    @property
    def num_bytes(self) -> int:
        return sum(owner.nbytes for owner in self._free)

    def kept_bytes(self, size: int) -> int:
        """How many bytes of an array of this size stay when nobody holds it any more."""
        return size if self.smallest <= size <= self.most else 0

    def array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array, not set to anything, which must be given to ``torch.from_numpy`` and not be seen otherwise: numpy's
        own views of it would not keep it from being used again."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if not self.kept_bytes(size):
            return np.empty(shape, dtype)
        owner = self._taken(size)
        owner = np.empty(size, np.uint8) if owner is None else owner
        seen: NDArray[Any] = owner.view(dtype).reshape(shape)
        weakref.finalize(seen, self._keep, owner).atexit = False
        return seen

    def give_back(self) -> None:
        """Let go of all of it."""
        with self._lock:
            self._free.clear()

    def _taken(self, size: int) -> NDArray[Any] | None:
        with self._lock:
            for place in reversed(range(len(self._free))):
                if self._free[place].nbytes == size:
                    return self._free.pop(place)
        return None

    def _keep(self, owner: NDArray[Any]) -> None:
        with self._lock:
            self._free.append(owner)
            while self.num_bytes > self.most:
                self._free.pop(0)


touched_memory = TouchedMemory()


WORKERS_VARIABLE = "HESSMAP_WORKERS"  # how many processes share the memory; set for the workers of a study
_LARGEST_BUDGET, _SMALLEST_BUDGET = 2**33, 2**26
_NO_LIMIT = 2**62
_NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")  # in errors of torch


def available_bytes() -> int:
    """Memory that can be had without swapping."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def default_budget() -> int:
    """A quarter of the memory that is available, at most 8 GiB, shared among the worker processes of a study.

    A power of two, so that two problems that are made one after the other have the same.
    """
    workers = os.environ.get(WORKERS_VARIABLE, "1")
    share = available_bytes() // (4 * max(1, int(workers) if workers.isdigit() else 1))
    allowed = max(_SMALLEST_BUDGET, min(_LARGEST_BUDGET, share))
    return int(2 ** (allowed.bit_length() - 1))


def readable_bytes(count: float) -> str:
    """
    >>> readable_bytes(288_000_000)
    '274.7 MiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def unwritten(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory for a large matrix or long vectors, not set to anything; that of one that nobody holds any more is used
    again (``touched_memory``).

    numpy asks the system for huge pages from 4 MiB on (Linux), torch does not. The first touch of 45 MB was seen to
    take 64 to 85 ms in small pages and 18 to 29 in huge ones, as much as the product that the memory was for.
    """
    if dtype not in (torch.float32, torch.float64):
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(touched_memory.array(shape, np.float64 if dtype == torch.float64 else np.float32))


def require_memory(what: str, needed: int, alternative: str) -> None:
    """Raise TooLarge, with the bytes and the alternative, unless that much memory is available."""
    if needed > available_bytes():
        touched_memory.give_back()
    available = available_bytes()
    if needed > available:
        must = f"{what} must fit the memory, {readable_bytes(available)} of which are available"
        raise TooLarge(sentence(must, f"it needs {readable_bytes(needed)}", alternative))


def checked_budget(given: float | None) -> tuple[int, tuple[str, ...]]:
    """The budget of a problem in bytes, and a note where nobody chose it; inf means no limit."""
    if given is None:
        budget = default_budget()
        return budget, (f"the memory budget is {readable_bytes(budget)}, from what was free",)
    number = number_or_none(given)
    must, got = "memory_budget must be at least 1 MiB", f"got {short_text(given)} bytes"
    require(number is not None and number >= 2**20, must, got, "Give a number of bytes, inf for no limit, or None")
    return int(min(number or 0.0, _NO_LIMIT)), ()


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether the memory of the machine or of a device ran out, by an error or by what it was raised from.

    torch raises a plain RuntimeError for the memory of the machine, known by its text.

    >>> is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried .."))
    True
    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("Batching rule not implemented"))
    (True, False)
    """
    while error is not None:
        if not isinstance(error, HessmapError):
            if isinstance(error, MemoryError | torch.OutOfMemoryError):
                return True
            if isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY):
                return True
        error = error.__cause__
    return False


def storage_address(tensor: Tensor) -> int:
    """Where its memory begins, which views share; 0 where there is none."""
    try:
        with torch._C.DisableTorchFunction():
            return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # sparse tensors have no storage
        return 0
