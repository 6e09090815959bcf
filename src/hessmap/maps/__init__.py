"""What a user asks of a model: the map of its curvature, a track along its training, a comparison, its function."""

from importlib import import_module
from types import ModuleType

_PARTS = ("comparison", "curvature_map", "functions", "learning", "track")  # each loaded when it is first used


def __getattr__(name: str) -> ModuleType:
    if name in _PARTS:
        return import_module(f"hessmap.maps.{name}")
    raise AttributeError(f"module 'hessmap.maps' has no attribute {name!r}; it has {', '.join(_PARTS)}")
