"""Available memory, the budget of a problem, and the error for what does not fit."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hessmap.errors import HessmapError, TooLarge, number_or_none, require, sentence, short_text

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


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor in the memory of the machine, for a large matrix or long vectors.

    numpy asks Linux for huge pages from 4 MiB on, torch does not: the first touch of 45 MB took 64 to 85 ms in small
    pages and 18 to 29 in huge ones, as long as the product that the memory was for.
    """
    if dtype not in (torch.float32, torch.float64):
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(np.empty(shape, np.float64 if dtype == torch.float64 else np.float32))


def rows_that_fit(budget: float, bytes_per_row: float, most: int) -> int:
    """How many rows (samples, vectors) are taken at once: as many as fit, at least one.

    Args:
        budget: Bytes that all rows together may take.
        bytes_per_row: Bytes of one row.
        most: Number of rows beyond which nothing is gained.

    Returns:
        int: A number between 1 and ``most``.

    Example:
        >>> rows_that_fit(1000, 300, 10), rows_that_fit(1000, 3000, 10), rows_that_fit(1000, 3, 10)
        (3, 1, 10)
    """
    return max(1, min(most, int(budget // max(1, bytes_per_row))))


def require_memory(what: str, needed: int, alternative: str) -> None:
    """Raise TooLarge, with the bytes and the alternative, unless that much memory is available."""
    available = available_bytes()
    if needed > available:
        must = f"{what} must fit the memory, {readable_bytes(available)} of which are available"
        raise TooLarge(sentence(must, f"it needs {readable_bytes(needed)}", alternative))


def checked_budget(given: float | None) -> int:
    """The budget of a problem in bytes; inf means no limit, None the default."""
    if given is None:
        return default_budget()
    number = number_or_none(given)
    must, got = "memory_budget must be at least 1 MiB", f"got {short_text(given)} bytes"
    require(number is not None and number >= 2**20, must, got, "Give a number of bytes, inf for no limit, or None")
    return int(min(number or 0.0, _NO_LIMIT))


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
