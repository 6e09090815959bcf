"""What an architecture is made from, checked: integers, and the words of its text."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

from hessmap.errors import require


def checked_count(name: str, value: object, at_least: int = 1) -> int:
    """A plain integer of at least ``at_least``; no float, no bool.

    >>> checked_count("outputs", 3)
    3
    """
    must = f"{name} must be an integer of at least {at_least}"
    is_integer = isinstance(value, SupportsIndex) and not isinstance(value, bool)
    require(is_integer, must, f"got {value!r}")
    count = operator.index(value)  # type: ignore[arg-type]
    require(count >= at_least, must, f"got {count}")
    return count


def checked_counts(name: str, values: object, at_least: int = 1) -> tuple[int, ...]:
    """A tuple of plain integers; the one at fault is named by its place.

    >>> checked_counts("kernels", [3, 0])
    Traceback (most recent call last):
        ...
    hessmap.errors.InvalidInput: kernels[1] must be an integer of at least 1; got 0.
    """
    is_sequence = isinstance(values, Iterable) and not isinstance(values, str)
    require(is_sequence, f"{name} must be a sequence of integers", f"got {values!r}", "Give for example (3, 3)")
    assert isinstance(values, Iterable)
    return tuple(checked_count(f"{name}[{place}]", value, at_least) for place, value in enumerate(values))


def read_words(text: str, flags: Sequence[str]) -> tuple[str, str, frozenset[str]]:
    """The sizes, the activation ("identity" unless given) and the flags of a network's text.

    >>> read_words("64-30-10 relu bias", flags=("bias",))
    ('64-30-10', 'relu', frozenset({'bias'}))
    """
    first, *rest = text.replace(", ", ",").split() or [""]
    others = [word for word in rest if word not in flags]
    require(len(others) <= 1, "a network has at most one activation", f"got {' and '.join(others)}")
    return first, others[0] if others else "identity", frozenset(rest) & frozenset(flags)
