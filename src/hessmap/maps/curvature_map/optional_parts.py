"""Parts of a map that may fail without taking the rest of it along."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hessmap.errors import HessmapError

Part = TypeVar("Part")


def optional_part(make: Callable[[], Part]) -> tuple[Part | None, str]:
    """The part, or None and the reason why it is not available.

    A map may take minutes, and most of its parts do not need each other: memory that runs out, a network or data that
    a formula does not cover, or an exception of the user's own code in one of them is a note of the map. What every
    part needs (the problem, its products) fails before any of them and is raised.

    >>> optional_part(lambda: 1 / 0)
    (None, 'ZeroDivisionError: division by zero')
    """
    try:
        return make(), ""
    except Exception as error:
        return None, reason_of(error)


def reason_of(error: Exception) -> str:
    """One line: the sentence of an error of hessmap, the type and the first line of any other."""
    lines = str(error).splitlines() or [""]
    return str(error) if isinstance(error, HessmapError) else f"{type(error).__name__}: {lines[0]}".removesuffix(": ")
