"""The command line: ``hessmap map``, ``predict``, ``certify`` and the others, and the commands of other packages.

The program is built when it is first asked for: packages that add commands import parts of this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hessmap.cli.program import app, main

__all__ = ["app", "main"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hessmap.cli import program

    return getattr(program, name)
