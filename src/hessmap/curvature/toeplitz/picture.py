"""A layer's matrix in letters, for the eye."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from string import ascii_letters, digits

_LETTERS = ascii_letters + digits


def picture(
    wiring: Sequence[Sequence[int]], weight_places: Collection[int], num_filters: int, input_shape: tuple[int, ...]
) -> str:
    """One line for each output, one sign for each input: the letter of the tap that joins them, a dot for none.

    Filters stand in blocks below each other and input channels beside each other. Equal letters in one block of rows
    are the same weight; '*' is more than one weight, or a tap beyond the 62 letters.

    >>> print(picture([[0, 1, 2], [1, 2, 3]], {0, 1, 2, 3}, num_filters=2, input_shape=(1, 4)))
    a b . .
    . a b .
    . . a b
    <BLANKLINE>
    a b . .
    . a b .
    . . a b
    """
    kept = set(weight_places)
    num_inputs = prod(input_shape)
    blocks = []
    for own_filter in range(num_filters):
        first = own_filter * len(wiring)
        taps = [tap for tap in range(len(wiring)) if first + tap in kept]
        lines = []
        for position in range(len(wiring[0])):
            signs = ["."] * (num_inputs + 1)
            for tap in taps:
                place = wiring[tap][position]
                signs[place] = _LETTERS[tap] if signs[place] == "." and tap < len(_LETTERS) else "*"
            lines.append(_by_channel(signs[:num_inputs], input_shape))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _by_channel(signs: list[str], input_shape: tuple[int, ...]) -> str:
    length = prod(input_shape[1:])
    if length == 1:
        return " ".join(signs)
    return "  |  ".join(" ".join(signs[start : start + length]) for start in range(0, len(signs), length))
