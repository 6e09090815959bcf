"""What a torch device offers: float64, full float32 products, its memory; and the random states of the process.

A budget of memory belongs to a problem; what does not fit raises ``TooLarge`` with both numbers and an alternative.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from hessmap.errors import HessmapError, TooLarge, number_or_none, require, sentence, short_text

_PIECE = 2**18  # random numbers that are drawn at a time
_ROUNDED = ("matmul", "conv", "rnn")  # operations of CUDA that may round float32 to TF32
_LOCK = threading.Lock()
_entered = 0  # contexts of all threads in which TF32 is off: the settings belong to the process
_restore: Callable[[], None] | None = None


def has_float64(device: torch.device) -> bool:
    """Check whether a device has float64 (MPS has not).

    Args:
        device: Device to check.

    Returns:
        True if a float64 tensor can be allocated there.
    """
    if device.type == "cpu":
        return True
    try:
        torch.empty(1, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError):
        return False
    return True


def widest_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype in which sums are accumulated on a device.

    Args:
        device: Device of the summands.

    Returns:
        float64, or float32 on devices without it.
    """
    return torch.float64 if has_float64(device) else torch.float32


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Context in which float32 products on a device are not rounded to TF32, which makes them wrong by about 1e-3.

    The settings belong to the process: they are changed when the first of several nested or concurrent contexts is
    entered, and restored when the last one is left. Nothing is changed for the CPU.

    Args:
        device: Device of the products.

    Returns:
        A context manager.

    Notes:
        torch has two interfaces to these settings and refuses to read the older one after the newer one was used. The
        older one (``allow_tf32``) is used where it can be read, else the newer one (``fp32_precision``).

    Example:
        >>> with full_precision(torch.device("cuda")):
        ...     torch.backends.cudnn.allow_tf32
        False
    """
    global _entered, _restore
    if device.type == "cpu":
        yield
        return
    with _LOCK:
        if _entered == 0:
            _restore = _switch_off_tf32()
        _entered += 1
    try:
        yield
    finally:
        with _LOCK:
            _entered -= 1
            if _entered == 0 and _restore is not None:
                _restore()
                _restore = None


def _switch_off_tf32() -> Callable[[], None]:
    """Change what is on, and return how to restore it."""
    cudnn = torch.backends.cudnn
    try:
        matmul_was_on, cudnn_was_on = torch.backends.cuda.matmul.allow_tf32, cudnn.allow_tf32
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # set by the newer interface
        return _switch_off_by_operation()
    of_host = _precision_of_host()
    if matmul_was_on:
        torch.set_float32_matmul_precision("highest")
    if cudnn_was_on:
        cudnn.allow_tf32 = False

    def restore() -> None:
        if matmul_was_on:
            torch.set_float32_matmul_precision(precision)
            if of_host is not None:  # which torch sets as well
                torch._C._set_fp32_precision_setter("mkldnn", "matmul", of_host)
        if cudnn_was_on:
            cudnn.allow_tf32 = True

    return restore


def _precision_of_host() -> str | None:
    read = getattr(torch._C, "_get_fp32_precision_getter", None)  # since torch 2.9
    return None if read is None else str(read("mkldnn", "matmul"))


def _switch_off_by_operation() -> Callable[[], None]:
    read, write = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter
    before = {name: read("cuda", name) for name in _ROUNDED}
    for name in _ROUNDED:
        write("cuda", name, "ieee")

    def restore() -> None:
        for name, value in before.items():
            write("cuda", name, value)

    return restore


def to_host(values: Tensor) -> Tensor:
    """Copy values to the host in float64; moved first, because the device may lack float64.

    Args:
        values: Tensor on any device.

    Returns:
        The float64 tensor on the host; the same tensor if it is one already.
    """
    return values.to("cpu").to(torch.float64)


def summed_on_host(values: Tensor, dim: int) -> Tensor:
    """Sum values over an axis on their device, in float64 or by compensated float32, and read the result.

    Args:
        values: Tensor on any device.
        dim: Axis to sum over.

    Returns:
        The sums on the host, in float64.
    """
    return read_sums(device_sums(values, dim))[0]


def device_sums(values: Tensor, dim: int) -> Tensor:
    """Sum values over an axis on their device, without reading the result.

    Args:
        values: Tensor on any device.
        dim: Axis to sum over.

    Returns:
        Terms whose sum over the first axis are the sums: one in float64, or two in compensated float32.
    """
    if has_float64(values.device):
        return values.sum(dim, dtype=torch.float64)[None]
    return torch.stack(_compensated_sum(values.movedim(dim, 0)))


def read_sums(*sums: Tensor) -> list[Tensor]:
    """Read several results of ``device_sums`` in one transfer.

    Args:
        *sums: Terms on one device and in one dtype.

    Returns:
        The sums on the host, in float64.
    """
    sent = sums[0] if len(sums) == 1 else torch.cat([each.reshape(-1) for each in sums])
    parts = torch.split(to_host(sent).reshape(-1), [each.numel() for each in sums])
    return [part.view(each.shape).sum(0) for part, each in zip(parts, sums, strict=True)]


def _compensated_sum(values: Tensor) -> tuple[Tensor, Tensor]:
    """The sum over the first axis as two numbers, by halves: what each addition rounds away (Knuth's TwoSum) is summed
    beside it, so that the pair has twice the digits of the format."""
    if not len(values):
        return values.sum(0), values.sum(0)
    errors = torch.zeros_like(values)
    while len(values) > 1:
        half = len(values) // 2
        one, other, rest = values[:half], values[half : 2 * half], values[2 * half :]
        joint = one + other
        shown = joint - one
        lost = (one - (joint - shown)) + (other - shown) + errors[:half] + errors[half : 2 * half]
        values, errors = torch.cat([joint, rest]), torch.cat([lost, errors[2 * half :]])
    return values[0], errors[0]


def normal_vectors(
    shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Draw normal numbers on the host and move them, piece by piece: the same numbers on every device.

    Args:
        shape: Shape of the result.
        generator: Generator of the host.
        dtype: Of the result; numbers are drawn in float64.
        device: Where they are needed.

    Returns:
        Tensor of the shape, dtype and device.
    """
    if device.type == "cpu" and dtype == torch.float64:
        return torch.randn(shape, generator=generator, dtype=torch.float64)
    found = torch.empty(shape, dtype=dtype, device=device)
    for part in torch.split(found.view(-1), _PIECE):
        part.copy_(torch.randn(part.shape, generator=generator, dtype=torch.float64).to(dtype))
    return found


def sign_vectors(
    shape: tuple[int, int], generator: torch.Generator, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Draw random signs on the host; to another device they move as bits, the same signs on every device.

    Args:
        shape: Shape of the result.
        generator: Generator of the host.
        dtype: Of the result.
        device: Where the signs are needed.

    Returns:
        Tensor of ones and minus ones.
    """
    found = torch.empty(shape, dtype=dtype, device=device)
    for rows in torch.split(found, max(1, _PIECE // max(1, shape[1]))):  # drawn integers take eight bytes
        drawn = torch.randint(0, 2, rows.shape, generator=generator)
        if device.type == "cpu":
            rows.copy_(drawn)
        else:
            packed = torch.from_numpy(np.packbits(drawn.numpy().astype(np.uint8).reshape(-1), bitorder="little"))
            places = torch.arange(8, dtype=torch.uint8, device=device)
            bits = (packed.to(device)[:, None] >> places).bitwise_and_(1)
            rows.copy_(bits.view(-1)[: rows.numel()].view(rows.shape))
        rows.mul_(2).sub_(1)
    return found


# The random states of python, numpy and torch belong to the process. A lock keeps threads of hessmap from borrowing
# them at the same time, because the second one would take the first one's state for the user's.
_BORROWED = threading.RLock()
_Item = TypeVar("_Item")


@contextmanager
def preserved_random_state(seed: int | None = None, *generators: torch.Generator | None) -> Iterator[None]:
    """Context that restores the global random states, and those of generators, when it is left.

    Args:
        seed: Seed of the global states inside. Defaults to None: they continue.
        generators: Further generators to restore.

    Returns:
        A context manager.
    """
    own = [generator for generator in generators if generator is not None]
    with _BORROWED:
        before = _states(own)
        try:
            if seed is not None:
                _seed_all(seed, own)
            yield
        finally:
            _restore_states(before, own)


def iterate_seeded(items: Iterable[_Item], seed: int, *generators: torch.Generator | None) -> Iterator[_Item]:
    """Iterate over items that may draw random numbers, as they are under a seed.

    The seeded states are in place while an item is fetched, the user's at all other times.

    Args:
        items: What is iterated over.
        seed: Seed of the random states in which the items are made.
        generators: Further generators to seed and to restore; None is skipped.

    Returns:
        Iterator: The items.
    """
    own = [generator for generator in generators if generator is not None]
    inner: Any = None
    iterator: Iterator[_Item] | None = None
    while True:
        with _BORROWED:
            before = _states(own)
            try:
                if iterator is None:
                    _seed_all(seed, own)
                    iterator = iter(items)
                else:
                    _restore_states(inner, own)
                item = next(iterator)
                inner = _states(own)
            except StopIteration:
                return
            finally:
                _restore_states(before, own)
        yield item


def _states(generators: list[torch.Generator]) -> Any:
    numpy_state = np.random.get_state()  # noqa: NPY002 - the global one is meant
    own = [generator.get_state() for generator in generators]
    return random.getstate(), numpy_state, torch.get_rng_state(), own, _device_states()


def _restore_states(states: Any, generators: list[torch.Generator]) -> None:
    python_state, numpy_state, torch_state, own, of_devices = states
    random.setstate(python_state)
    np.random.set_state(numpy_state)  # noqa: NPY002
    torch.set_rng_state(torch_state)
    _restore_devices(of_devices)
    for generator, state in zip(generators, own, strict=True):
        generator.set_state(state)


def _seed_all(seed: int, generators: list[torch.Generator]) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    _seed_devices(seed)
    for generator in generators:
        generator.manual_seed(seed)


def _device_states() -> dict[str, Any]:
    """The random states of all accelerators that are in use, by the name of the backend."""
    return {name: [module.get_rng_state(index) for index in range(_count(module))] for name, module in _backends()}


def _restore_devices(states: dict[str, Any]) -> None:
    for name, module in _backends():
        for index, state in enumerate(states.get(name, ())):
            module.set_rng_state(state, index)


def _seed_devices(seed: int) -> None:
    for _, module in _backends():
        module.manual_seed_all(seed)


def _backends() -> list[tuple[str, Any]]:
    """Backends with a generator of their own, if the process uses them: asking must not initialise one."""
    names = ("cuda", "xpu", torch._C._get_privateuse1_backend_name())
    found = ((name, getattr(torch, name, None)) for name in names)
    return [(name, module) for name, module in found if module is not None and _is_in_use(module)]


def _is_in_use(module: Any) -> bool:
    is_initialized = getattr(module, "is_initialized", None)
    return is_initialized is not None and hasattr(module, "get_rng_state") and bool(is_initialized())


def _count(module: Any) -> int:
    return int(module.device_count())


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
