"""What a torch device offers: float64, and its random state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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
