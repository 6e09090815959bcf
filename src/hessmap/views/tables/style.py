"""One look for all tables: a rule under the heads, no frame, narrow enough for 80 columns."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table


def new_table(title: str = "") -> Table:
    """A table without columns yet."""
    return Table(
        title=title or None,
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
