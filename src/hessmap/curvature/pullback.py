"""Reverse-mode differentiation of one vector function at one point, with types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, func


def pullback(function: Callable[[Tensor], Tensor], point: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The value of a function, and the product of a cotangent with its Jacobian."""
    linearised: Any = func.vjp(function, point)
    value, pull = linearised
    return value, lambda cotangent: pull(cotangent)[0]
