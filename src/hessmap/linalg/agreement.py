"""The one check of every shortcut: what structure gives is compared with autograd, and thrown away if they differ."""

from __future__ import annotations

import torch
from torch import Tensor

# Relative to the largest entry, per number format.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 2e-4}


def tolerance(dtype: torch.dtype) -> float:
    return TOLERANCES[dtype]


def disagreement(found: Tensor, expected: Tensor, uncancelled: float = 0.0) -> float:
    """The largest entry of the difference relative to that of what autograd gives: largest entries, because squares
    vanish for data of scale 1e-100 and overflow for 1e100.

    ``uncancelled`` is the size of what cancelled in the sum, which rounding is relative to.
    """
    if not expected.numel():
        return 0.0
    error = float((found - expected).abs().max())
    scale = max(float(expected.abs().max()), uncancelled)
    return error / scale if scale > 0 else error


def random_vector(size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """The vector that products are compared on: the same for the same size."""
    generator = torch.Generator().manual_seed(size)
    return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)
