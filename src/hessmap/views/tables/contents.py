"""What stands in a table, as text: the same for the terminal and for a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.table import Table as RichTable
from rich.text import Text

from hessmap.views.tables.style import new_table


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
        table.add_column(label, justify="right" if is_number else "left", no_wrap=place == 0)
    for line in contents.lines:
        table.add_row(*(Text(cell, style=style(cell)) for cell in line))
    return table
