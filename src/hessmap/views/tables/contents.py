"""What stands in a table, as text, the same for the terminal and for a page, and how numbers are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from rich.text import Text

from hessmap.results.maps import HESSIAN_SYMBOLS

HESSIAN_NAMES: dict[str, str] = {part: f"{symbol} {part.replace('_', ' ')}" for part, symbol in HESSIAN_SYMBOLS.items()}


@dataclass(frozen=True)
class Table:
    """Labels above, lines of text below, and which columns hold numbers."""

    labels: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    is_number: tuple[bool, ...]


def terminal_table(contents: Table, style: Callable[[str], str] = lambda text: "") -> RichTable:
    """The table for a terminal; ``style`` names the rich style of a cell by its text."""
    table = new_table()
    for place, (label, is_number) in enumerate(zip(contents.labels, contents.is_number, strict=True)):
        table.add_column(Text(label), justify="right" if is_number else "left", no_wrap=place == 0)
    for line in contents.lines:
        table.add_row(*(Text(cell, style=style(cell)) for cell in line))
    return table


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
