"""The conditions that integers must meet before a formula is applied to them."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from hessmap.errors import InvalidInput, integer_or_none, require, sentence, short_text


class Widths(tuple[int, ...]):
    """Widths that have been checked once, so that one formula can call another without checking them again."""

    __slots__ = ()


def checked_widths(widths: Iterable[int]) -> Widths:
    """The widths as plain integers, input first and output last, each at least 1.

    >>> checked_widths([64, 30, 10])
    (64, 30, 10)
    """
    if isinstance(widths, Widths):
        return widths
    must = "widths must be integers of at least 1, input first and output last"
    try:
        checked = Widths(map(operator.index, widths))
    except TypeError:
        raise InvalidInput(sentence(must, f"got {short_text(widths)}")) from None
    require(len(checked) >= 2, "widths must hold an input and an output", f"got {checked}")
    if min(checked) < 1:
        place = next(index for index, width in enumerate(checked) if width < 1)
        raise InvalidInput(sentence(must, f"widths[{place}] is {checked[place]}"))
    return checked


def checked_count(name: str, value: int, at_least: int = 0, at_most: int | None = None, why: str = "") -> int:
    """An integer between two bounds; ``why`` names the upper one.

    >>> checked_count("input_rank", 3, at_most=4, why="the input dimension")
    3
    """
    count = operator.index(value) if isinstance(value, bool) else integer_or_none(value)
    if count is None:
        raise InvalidInput(sentence(f"{name} must be an integer", f"got {short_text(value)}"))
    require(count >= at_least, f"{name} must be at least {at_least}", f"got {count}")
    if at_most is not None:
        require(count <= at_most, f"{name} must be at most {at_most}, {why}", f"got {count}")
    return count


def checked_output(widths: Widths, effective_output_dim: int | None) -> int:
    """The outputs that the loss can tell apart: all of them, unless said otherwise.

    >>> checked_output(checked_widths((4, 3)), None), checked_output(checked_widths((4, 3)), 2)
    (3, 2)
    """
    if effective_output_dim is None:
        return widths[-1]
    return checked_count("effective_output_dim", effective_output_dim, at_most=widths[-1], why="the output dimension")


def checked_input_rank(widths: Widths, input_rank: int) -> int:
    return checked_count("input_rank", input_rank, at_most=widths[0], why="the input dimension")


def checked_centred_input_rank(widths: Widths, centred_input_rank: int) -> int:
    return checked_count("centred_input_rank", centred_input_rank, at_most=widths[0], why="the input dimension")


def checked_residual_rank(residual_rank: int, at_most: int, why: str) -> int:
    return checked_count("residual_rank", residual_rank, at_most=at_most, why=why)
