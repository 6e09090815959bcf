"""No study shows more panels or claims than a reader can take in; the others are shown on request."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from committed import committed
from rich.console import Console

from hessmap_research.runner.claims import Claim, StudyOutcome
from hessmap_research.runner.registry import find, listing
from hessmap_research.views.panels import MOST_PANELS, panels, panels_note, shown_panels
from hessmap_research.views.text import outcome_view

NAMES = [listed.name for listed in listing()]


@pytest.mark.parametrize("name", NAMES)
def test_a_study_shows_at_most_nine_panels(name: str) -> None:
    assert 1 <= len(shown_panels(committed(name))) <= MOST_PANELS


@pytest.mark.parametrize("name", [name for name in NAMES if find(name).data])
def test_every_data_set_is_shown_on_request(name: str) -> None:
    found = committed(name)
    for data in {row.case["data"] for row in found.stored.rows}:
        rows = tuple(row for row in found.stored.rows if row.case["data"] == data)
        shown = shown_panels(replace(found, stored=replace(found.stored, rows=rows)))
        assert len(shown) <= MOST_PANELS, data
        assert {row.case["data"] for panel in shown for row in panel.rows} <= {data}


@pytest.mark.parametrize("name", ["cnn/locality", "layers/training", "fcn/reconstruction"])
def test_the_first_data_set_is_shown_of_many(name: str) -> None:
    found, study = committed(name), find(name)
    assert len(panels(study.view.figures, found.stored.rows)) > MOST_PANELS
    assert {row.case["data"] for panel in shown_panels(found) for row in panel.rows} == {study.data[0]}


def test_a_study_of_few_panels_shows_all_data_sets() -> None:
    found = committed("layers/published-networks")
    assert len({row.case["data"] for panel in shown_panels(found) for row in panel.rows}) > 1


@pytest.mark.parametrize("name", ["cnn/locality", "layers/training", "fcn/reconstruction"])
def test_the_data_sets_that_figures_leave_out_are_named(name: str) -> None:
    (note,) = panels_note(committed(name))
    shown, left = note.split("; --data shows those of ")
    assert shown == f"The figures are of {find(name).data[0]}"
    assert "mnist" in left
    assert panels_note(committed("layers/published-networks")) == ()


@pytest.mark.parametrize(("num_claims", "hidden"), [(0, 0), (12, 3), (14, 1), (20, 0)])
def test_claims_that_fail_come_first_and_the_others_are_counted(num_claims: int, hidden: int) -> None:
    claims = tuple(Claim(f"claim-{place}", f"Claim {place}", place != 13) for place in range(15))
    file = io.StringIO()
    Console(file=file, width=80).print(outcome_view(StudyOutcome("a/b", 3, claims=claims), num_claims))
    lines = file.getvalue().splitlines()
    assert lines[0] == "  does not hold: Claim 13"
    assert sum("Claim" in line for line in lines) == 15 - hidden
    assert any(f"{hidden} more claim" in line for line in lines) == bool(hidden)
