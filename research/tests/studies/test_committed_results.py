"""What is committed in results/ fits the studies as they are now, so that a clone can draw it."""

from __future__ import annotations

from pathlib import Path

import pytest
from committed import committed

from hessmap.records.record import decode, encode
from hessmap_research.runner.collection import results_path, results_text
from hessmap_research.runner.registry import find, listing
from hessmap_research.views.panels import curves, panels
from hessmap_research.views.table import study_table

RESULTS = Path(__file__).parents[2] / "results"
NAMES = [listed.name for listed in listing() if results_path(find(listed.name), RESULTS).exists()]


@pytest.mark.parametrize("name", NAMES)
def test_committed_results_can_be_shown(name: str) -> None:
    study = find(name)
    collection = committed(name)
    assert collection.stored.rows
    assert collection.notes == ()
    assert len(study_table(collection).lines) > 0
    opened = panels(study.view.figures, collection.stored.rows)
    assert opened  # figures of data that were not run have no rows, and no panel
    assert {panel.figure.title for panel in opened} <= {figure.title for figure in study.view.figures}
    for panel in opened:
        if hasattr(panel.figure, "series"):
            assert curves(panel.figure, panel.rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_committed_results_are_written_as_an_export_writes_them(name: str) -> None:
    study = find(name)
    text = results_path(study, RESULTS).read_text(encoding="utf-8")
    assert results_text(study, committed(name).stored) == text


def test_the_committed_simulation_is_what_the_formulas_give_now() -> None:
    study = find("fcn/simulate")
    rows = committed(study.name).stored.rows
    light = [row for row in rows if row["num_layers"] <= 1000]
    assert len(light) > 40
    for row in light:
        assert decode(encode(study.measure(row.case))) == row.record
