"""What a torch device offers: float64, and its random state."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

_PIECE = 2**18  # random numbers that are drawn at a time


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


def to_host(values: Tensor) -> Tensor:
    """Copy values to the host in float64; moved first, because the device may lack float64.

    Args:
        values: Tensor on any device.

    Returns:
        The float64 tensor on the host; the same tensor if it is one already.
    """
    return values.to("cpu").to(torch.float64)


def summed_on_host(values: Tensor, dim: int) -> Tensor:
    """Sum float32 values over an axis in float64, on the device where it has float64, and read the result.

    Args:
        values: Tensor on any device.
        dim: Axis to sum over.

    Returns:
        The sums on the host, in float64.
    """
    if has_float64(values.device):
        return values.sum(dim, dtype=torch.float64).cpu()
    return to_host(values).sum(dim)


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
