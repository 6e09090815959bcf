"""Tables in narrow terminals: no digit and no key is lost."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hessmap.views.tables.contents import FittingTable, Table, column_parts

WIDE = Table(
    labels=("data set", "seed", *(f"quantity {place}" for place in range(8))),
    lines=tuple(("fashion_mnist", f"{seed}", *(f"0.{seed}{place}345 (to 9)" for place in range(8))) for seed in (1, 2)),
    is_number=(False, *[True] * 9),
    is_key=(True, True, *[False] * 8),
)


@pytest.mark.parametrize("width", [50, 80, 200])
def test_every_cell_is_whole_at_every_width(width: int) -> None:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(FittingTable(WIDE))
    text = console.export_text()
    assert "…" not in text
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    for cell in {cell for line in WIDE.lines for cell in line}:
        assert cell in text
    num_parts = len(column_parts(WIDE, width))
    assert text.count("fashion_mnist") == 2 * num_parts
    assert (num_parts == 1) == (width == 200)


def test_without_keys_the_columns_of_words_are_repeated() -> None:
    plain = Table(WIDE.labels, WIDE.lines, WIDE.is_number)
    assert all(part[0] == 0 for part in column_parts(plain, 60))
    assert sorted({place for part in column_parts(plain, 60) for place in part}) == list(range(10))
