"""No study shows more panels or claims than a reader can take in; the others are shown on request."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from committed import committed
from rich.console import Console

from hessmap_research.runner.claims import MOST_CLAIMS, Claim, StudyOutcome
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


@pytest.mark.parametrize("name", NAMES)
def test_a_study_shows_at_most_twelve_claims(name: str) -> None:
    study, outcome = find(name), committed(name).outcome
    shown = outcome.shown(study.families)
    assert len(shown) <= MOST_CLAIMS
    assert sum((claim.total or 1) if claim.id in study.families else 1 for claim in shown) == len(outcome.claims)
    assert any(claim.holds is False for claim in shown) == bool(outcome.failing)


@pytest.mark.parametrize(
    ("outcomes", "gathered", "detail"),
    [
        ((True, True), "holds", "2 of 2"),
        ((True, None), "inconclusive", "1 of 2; inconclusive for b-c"),
        ((False, None), "does not hold", "0 of 2; does not hold for a; inconclusive for b-c"),
    ],
)
def test_a_family_holds_where_all_of_its_claims_do(
    outcomes: tuple[bool | None, ...], gathered: str, detail: str
) -> None:
    own = [Claim(f"peak-{case}", "It peaks", holds) for case, holds in zip(("a", "b-c"), outcomes, strict=True)]
    outcome = StudyOutcome("a/b", 3, claims=(Claim("peaks", "Another", True), *own))
    shown = {claim.id: claim for claim in outcome.shown({"peak": "Every curve peaks"})}
    assert set(shown) == {"peaks", "peak"}
    assert (shown["peak"].outcome, shown["peak"].detail) == (gathered, detail)
    assert shown["peak"].sentence == "Every curve peaks"


@pytest.mark.parametrize(("num_claims", "hidden"), [(0, 0), (12, 3), (14, 1), (20, 0)])
def test_claims_that_fail_come_first_and_the_others_are_counted(num_claims: int, hidden: int) -> None:
    claims = tuple(Claim(f"claim-{place}", f"Claim {place}", place != 13) for place in range(15))
    file = io.StringIO()
    Console(file=file, width=80).print(outcome_view(StudyOutcome("a/b", 3, claims=claims), num_claims))
    lines = file.getvalue().splitlines()
    assert lines[0] == "  does not hold: Claim 13"
    assert sum("Claim" in line for line in lines) == 15 - hidden
    assert any("--claims 0 prints all 15" in line for line in lines) == bool(hidden)
