"""Tests on a device of its own: ``make test-device``, or DEVICE=cuda for a real one.

The stand-in device changes torch for the whole process, so that these tests run only where HESSMAP_DEVICE names one.
"""

from __future__ import annotations

import os

import pytest
import torch

NAME = os.environ.get("HESSMAP_DEVICE", "")
collect_ignore_glob = [] if NAME else ["*"]


@pytest.fixture(scope="session")
def device() -> torch.device:
    if NAME != "second":
        if NAME.partition(":")[0] not in _available():
            pytest.skip(f"torch has no device '{NAME}' here")
        return torch.device(NAME)
    try:
        from second_device import DEVICE
    except (ImportError, AttributeError) as error:
        pytest.skip(f"this torch has no hook for a device in Python: {error}")
    return DEVICE


def _available() -> list[str]:
    names = ("cuda", "xpu", "mps")
    return [name for name in names if hasattr(torch, name) and getattr(torch, name).is_available()]
