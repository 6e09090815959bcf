"""Degrees of polynomials of general position: integers of a given sum that are as equal as can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def balanced_degrees(total: Any, parts: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """The two degrees of ``parts`` integers of sum ``total`` that differ by at most one, and how many there are of
    each; also of arrays.

    >>> balanced_degrees(7, 3)  # 2, 2 and 3
    ((2, 2), (3, 1))
    """
    low = total // parts
    num_high = total - low * parts
    return (low, parts - num_high), (low + 1, num_high)


def sum_over_balanced(term: Callable[[Any], Any], total: Any, parts: Any) -> Any:
    """The sum of ``term`` over ``balanced_degrees``.

    >>> sum_over_balanced(lambda part: part * part, 7, 3)
    17
    """
    return sum(count * term(degree) for degree, count in balanced_degrees(total, parts))
