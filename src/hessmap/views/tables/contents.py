"""What stands in a table, as text, the same for the terminal and for a page, and how numbers are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from hessmap.records import HESSIAN_SYMBOLS, Part

_GAP = 2  # between two columns
_LONG = 18  # longer cells of words may go on in the next line
_PART_NAMES: dict[Part, str] = {"outer_product": "GGN", "functional": "functional", "loss": "loss"}
HESSIAN_NAMES = {part: f"{symbol} ({_PART_NAMES[part]})" for part, symbol in HESSIAN_SYMBOLS.items()}


@dataclass(frozen=True)
class Table:
    """Labels above, lines of text below, which columns hold numbers, and which say what a line is about.

    Without ``is_key`` these are the columns of words. ``num_left_out`` lines are not there.
    """

    labels: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    is_number: tuple[bool, ...]
    is_key: tuple[bool, ...] = ()
    num_left_out: int = 0

    @property
    def keys(self) -> list[int]:
        chosen = self.is_key or tuple(not is_number for is_number in self.is_number)
        return [place for place, is_key in enumerate(chosen) if is_key]


class FittingTable:
    """A table for a terminal of any width: where the columns do not fit side by side, in parts one below the other.

    Every part begins with the columns that say what a line is about. No cell is cut: numbers keep all their digits, and
    words go on in the next line.
    """

    def __init__(self, contents: Table, style: Callable[[str], str] = lambda text: "") -> None:
        self.contents, self.style = contents, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for columns in column_parts(self.contents, options.max_width):
            yield self._part(columns, options.max_width)

    def _part(self, columns: Sequence[int], width: int) -> RichTable:
        table = new_table()
        for place, column_width in zip(columns, column_widths(self.contents, columns, width), strict=True):
            justify: Literal["left", "right"] = "right" if self.contents.is_number[place] else "left"
            table.add_column(Text(self.contents.labels[place]), justify=justify, overflow="fold", width=column_width)
        for line in self.contents.lines:
            table.add_row(*(Text(line[place], style=self.style(line[place])) for place in columns))
        return table


def column_parts(contents: Table, width: int) -> list[list[int]]:
    """Which columns stand side by side within a width: the keys in every part, then as many others as fit.

    Where the keys take more than half of the width, those that the others make up for stand in the first part alone.

    >>> wide = Table(("name", "a", "b"), (("x", "1234567", "1234567"),), (False, True, True))
    >>> column_parts(wide, 30), column_parts(wide, 16)
    ([[0, 1, 2]], [[0, 1], [0, 2]])
    """
    keys = contents.keys
    taken = sum(_least_width(contents, place) + _GAP for place in keys)
    if taken > width // 2:
        keys = _needed_keys(contents, width // 2)
        taken = sum(_least_width(contents, place) + _GAP for place in keys)
    others = [place for place in range(len(contents.labels)) if place not in keys]
    widest = max((_least_width(contents, place) + _GAP for place in others), default=0)
    if taken + widest > width + _GAP:  # beside the widest column keys go on in the next line, word by word
        taken = sum(_word_width(contents, place) + _GAP for place in keys)
    parts: list[list[int]] = [[]]
    room = width + _GAP - taken
    for place in others:
        needed = _least_width(contents, place) + _GAP
        if parts[-1] and needed > room:
            parts.append([])
            room = width + _GAP - taken
        parts[-1].append(place)
        room -= needed
    return [sorted(keys + part) for part in parts]


def _needed_keys(contents: Table, width: int) -> list[int]:
    """The keys, less the widest without which lines are told apart as well, until the others fit into a width."""
    keys = contents.keys
    for place in sorted(keys, key=lambda key: -_least_width(contents, key)):
        rest = [key for key in keys if key != place]
        is_wide = sum(_least_width(contents, key) + _GAP for key in keys) > width
        if is_wide and rest and _num_different(contents, rest) == _num_different(contents, keys):
            keys = rest
    return keys


def _num_different(contents: Table, columns: Sequence[int]) -> int:
    return len({tuple(line[place] for place in columns) for line in contents.lines})


def column_widths(contents: Table, columns: Sequence[int], width: int) -> list[int]:
    """The width of each of these columns within a width: their longest words at least, then what they would like.

    >>> table = Table(("inputs", "a"), (("as they are", "12345"),), (False, True))
    >>> column_widths(table, [0, 1], 30), column_widths(table, [0, 1], 13)
    ([11, 5], [6, 5])
    """
    widths = [_word_width(contents, place) for place in columns]
    room = width - sum(widths) - _GAP * (len(columns) - 1)
    numbers_first = sorted(enumerate(columns), key=lambda column: not contents.is_number[column[1]])
    for wanted in (_least_width, _cell_width, _head_width):
        for position, place in numbers_first:
            more = max(0, min(wanted(contents, place) - widths[position], room))
            widths[position] += more
            room -= more
    return widths


def _cell_width(contents: Table, place: int) -> int:
    """The longest cell of a column, or the longest word above it."""
    cells = [len(line[place]) for line in contents.lines]
    return max([*cells, *(len(word) for word in contents.labels[place].split())], default=0)


def _head_width(contents: Table, place: int) -> int:
    """The whole label of a column of words; of numbers the head may go on in the next line."""
    return 0 if contents.is_number[place] else len(contents.labels[place])


def _word_width(contents: Table, place: int) -> int:
    """The longest word of a column, in a cell or above it."""
    cells = [contents.labels[place], *(line[place] for line in contents.lines)]
    return max((len(word) for cell in cells for word in cell.split()), default=0)


def _least_width(contents: Table, place: int) -> int:
    """What a column should have: all of a number, and of words no more than can go on in the next line."""
    width = _cell_width(contents, place)
    return width if contents.is_number[place] else max(min(_LONG, width), _word_width(contents, place))


def new_table(title: str = "") -> RichTable:
    """A table without columns yet: a rule under the heads, no frame, narrow enough for 80 columns."""
    return RichTable(
        title=Text(title) if title else None,
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )


def ratio(value: float) -> str:
    """A ratio that may be enormous, in few signs.

    >>> ratio(12345678.9), ratio(3.2), ratio(float("inf"))
    ('1.2e+07', '3.2', 'inf')
    """
    return f"{value:.2g}"


def number(value: float) -> str:
    """A measured number with three digits.

    >>> number(0.00012345), number(12.3456)
    ('0.000123', '12.3')
    """
    return f"{value:.3g}"


def moment(created: str) -> str:
    """A moment as records write it, for people.

    >>> moment("2026-03-01T09:30:00Z")
    '2026-03-01 09:30:00 UTC'
    """
    return created.replace("T", " ").replace("Z", " UTC")
