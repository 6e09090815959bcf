"""What a user asks of a model: the map of its curvature, a track along its training, a comparison, its function.

A package is loaded when it is first used: comparisons of records need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hessmap.maps import comparison, curvature_map, functions, learning, track

__all__ = ["comparison", "curvature_map", "functions", "learning", "track"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"hessmap.maps.{name}")
    raise AttributeError(f"module 'hessmap.maps' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
