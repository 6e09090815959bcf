"""What an architecture is made from, checked: integers, and the words of its text."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

from hessmap.errors import InvalidInput, require, sentence


def integer_or_none(value: object) -> int | None:
    """A whole number as a plain int; None for anything else, for bools too.

    >>> integer_or_none(3), integer_or_none(3.0), integer_or_none(True)
    (3, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array or tensor of many numbers
        return None


def checked_count(name: str, value: object, at_least: int = 1) -> int:
    """A plain integer of at least ``at_least``; no float, no bool.

    >>> checked_count("outputs", 3)
    3
    """
    must = f"{name} must be an integer of at least {at_least}"
    count = integer_or_none(value)
    if count is None or count < at_least:
        raise InvalidInput(sentence(must, f"got {value!r}"))
    return count


def checked_seed(seed: object) -> int:
    """A seed that every random generator takes.

    >>> checked_seed(-1)
    Traceback (most recent call last):
        ...
    hessmap.errors.InvalidInput: seed must be an integer of at least 0; got -1.
    """
    checked = checked_count("seed", seed, 0)
    require(checked < 2**63, "seed must lie below 2^63", f"got {checked}")
    return checked


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
    require(isinstance(text, str), "a network is written as a text, as '64-30-10 relu'", f"got {text!r}")
    first, *rest = text.replace(", ", ",").split() or [""]
    others = [word for word in rest if word not in flags]
    require(len(others) <= 1, "a network has at most one activation", f"got {' and '.join(others)}")
    return first, others[0] if others else "identity", frozenset(rest) & frozenset(flags)
