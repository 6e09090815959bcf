"""A pickle that says whether it was run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


class Marker:
    """What leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)
