"""Tables, figures and pages: they read results and compute nothing.

A part is loaded when it is first used: ``plots`` needs matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hessmap.views import page, plots, progress, tables

__all__ = ["page", "plots", "progress", "tables"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"hessmap.views.{name}")
    raise AttributeError(f"module 'hessmap.views' has no attribute {name!r}; it has {', '.join(__all__)}")
