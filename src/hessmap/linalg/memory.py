"""Available memory, the budget of a problem, and the error for what does not fit."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hessmap.errors import HessmapError, TooLarge, number_or_none, require, sentence, short_text

WORKERS_VARIABLE = "HESSMAP_WORKERS"  # how many processes share the memory; set for the workers of a study
_LARGEST_BUDGET, _SMALLEST_BUDGET, _SMALLEST_DEVICE_BUDGET = 2**33, 2**26, 2**20
_NO_LIMIT = 2**62
_NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")  # in errors of torch


def available_bytes(device: torch.device | str | None = None) -> int:
    """Return the free memory of a device, or of the machine.

    Args:
        device: Accelerator to ask. Default: the memory of the machine, which the CPU uses.

    Returns:
        Bytes that can be allocated without swapping; those of the machine where a backend does not report its own.
    """
    place = torch.device("cpu" if device is None else device)
    if place.type != "cpu":
        free = _free_device_bytes(place)
        if free is not None:
            return free
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _free_device_bytes(device: torch.device) -> int | None:
    """Free bytes of an accelerator by the first interface that reports them: torch.accelerator is new, CUDA and XPU
    have ``mem_get_info``, MPS has a recommended maximum."""
    backend: Any = getattr(torch, device.type, None)
    index = device.index or 0
    if hasattr(backend, "mem_get_info"):
        with suppress(RuntimeError, NotImplementedError, AssertionError):
            return int(backend.mem_get_info(index)[0])
    if device.type == "mps":
        with suppress(RuntimeError, AttributeError):
            return max(0, int(torch.mps.recommended_max_memory()) - int(torch.mps.driver_allocated_memory()))
    accelerator: Any = getattr(torch, "accelerator", None)
    if hasattr(accelerator, "get_memory_info"):
        with suppress(RuntimeError, NotImplementedError, AssertionError):
            return int(accelerator.get_memory_info(index)[0])
    return None


def default_budget(device: torch.device | str | None = None) -> int:
    """Return the memory budget of a problem that was given none.

    Args:
        device: Device of the problem. Default: the CPU.

    Returns:
        A quarter of the free memory of the machine, at most 8 GiB, or half of the free memory of an accelerator;
        divided by the number of worker processes of a study. A power of two, so that two problems that are made one
        after the other have the same.
    """
    workers = os.environ.get(WORKERS_VARIABLE, "1")
    num_workers = max(1, int(workers) if workers.isdigit() else 1)
    if torch.device("cpu" if device is None else device).type == "cpu":
        allowed = max(_SMALLEST_BUDGET, min(_LARGEST_BUDGET, available_bytes() // (4 * num_workers)))
    else:
        allowed = max(_SMALLEST_DEVICE_BUDGET, available_bytes(device) // (2 * num_workers))
    return int(2 ** (allowed.bit_length() - 1))


def readable_bytes(count: float) -> str:
    """Format a number of bytes.

    Args:
        count: Number of bytes.

    Returns:
        The number with its unit.

    Example:
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

    Args:
        shape: Shape of the tensor.
        dtype: Of its entries.

    Returns:
        Uninitialised memory on the host.
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


def require_memory(what: str, needed: int, alternative: str, device: torch.device | str | None = None) -> None:
    """Raise an error unless an allocation fits into the free memory.

    Args:
        what: What is to be stored, for the message.
        needed: Bytes that it takes.
        alternative: What to do instead, for the message.
        device: Device of the allocation. Default: the CPU.

    Raises:
        TooLarge: If fewer bytes are available, with both numbers and the alternative.
    """
    available = available_bytes(device)
    if needed > available:
        must = f"{what} must fit into memory ({readable_bytes(available)} available)"
        raise TooLarge(sentence(must, f"it needs {readable_bytes(needed)}", alternative))


def checked_budget(given: float | None, device: torch.device | str | None = None, least: int = 2**20) -> int:
    """Validate a memory budget.

    Args:
        given: Bytes, inf for no limit, or None for the default of the device.
        device: Device whose memory the budget counts. Default: the CPU.
        least: Smallest accepted number of bytes. Defaults to 1 MiB.

    Returns:
        The budget in bytes.

    Raises:
        InvalidInput: If the budget is not a number of at least ``least`` bytes.
    """
    if given is None:
        return default_budget(device)
    number = number_or_none(given)
    must, got = f"memory_budget must be at least {_least_text(least)}", f"got {short_text(given)} bytes"
    require(number is not None and number >= least, must, got, "Give a number of bytes, inf for no limit, or None")
    return int(min(number or 0.0, _NO_LIMIT))


def _least_text(least: int) -> str:
    return f"{least // 2**20} MiB" if least >= 2**20 else f"{least} bytes"


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether the memory of the machine or of a device ran out, by an error or by what it was raised from.

    torch raises a plain RuntimeError for the memory of the machine, known by its text.

    Args:
        error: An error, or None.

    Returns:
        True if memory ran out.

    Example:
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
    """Where its memory begins, which views share; 0 where there is none.

    Args:
        tensor: Any tensor.

    Returns:
        The address, or 0 for tensors without a storage.
    """
    try:
        with torch._C.DisableTorchFunction():
            return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # sparse tensors have no storage
        return 0
