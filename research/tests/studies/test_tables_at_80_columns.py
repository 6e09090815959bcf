"""Every committed study at the width of a plain terminal: no number, no key and no word is cut or broken."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from committed import committed
from rich.console import Console

from hessmap.views.tables.contents import FittingTable, Table
from hessmap_research.runner.registry import listing
from hessmap_research.views.table import study_table
from hessmap_research.views.text import collection_view

RESULTS = Path(__file__).parents[2] / "results"
STUDIES = [study.name for study in listing() if (RESULTS / f"{study.name.replace('/', '-')}.json").exists()]
WIDTH = 80


def printed(shown: object) -> str:
    """What a terminal of 80 columns would show."""
    file = StringIO()
    Console(file=file, width=WIDTH, color_system=None).print(shown)
    return file.getvalue()


def lost_words(table: Table, text: str) -> list[str]:
    """Words of cells and of column names that the text does not have as they are."""
    there = set(text.split())
    cells = (cell for line in (table.labels, *table.lines) for cell in line)
    return sorted({word for cell in cells for word in cell.split() if word not in there})


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_at_80_columns_loses_nothing(name: str) -> None:
    found = committed(name)
    text = printed(collection_view(found, 40, ()))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "…" not in text
    assert lost_words(study_table(found, 40), text) == []


def test_the_check_sees_a_broken_word() -> None:
    table = Table(("network", "rank"), (("64-30-20-10", "0.1234"),), (False, True), (True, False))
    assert lost_words(table, printed(FittingTable(table))) == []
    assert lost_words(table, "network rank 64-30-20- 10 0.12") == ["0.1234", "64-30-20-10"]
