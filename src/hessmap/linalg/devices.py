"""What a torch device offers: float64, full float32 products, and its random state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

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
    if has_float64(values.device):
        return values.sum(dim, dtype=torch.float64).cpu()
    total, error = _compensated_sum(values.movedim(dim, 0))
    return to_host(total) + to_host(error)


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


def device_random_states() -> dict[str, Any]:
    """Read the random states of all accelerators that are in use.

    Returns:
        States by the name of the backend, for ``restore_device_random_states``.
    """
    return {name: [module.get_rng_state(index) for index in range(_count(module))] for name, module in _backends()}


def restore_device_random_states(states: dict[str, Any]) -> None:
    """Restore the random states of accelerators.

    Args:
        states: Result of ``device_random_states``.
    """
    for name, module in _backends():
        for index, state in enumerate(states.get(name, ())):
            module.set_rng_state(state, index)


def seed_devices(seed: int) -> None:
    """Seed the default generators of all accelerators that are in use.

    Args:
        seed: The seed.
    """
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
