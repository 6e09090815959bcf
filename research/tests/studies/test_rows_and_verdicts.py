"""Rows read by dotted names, and what is judged of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hessmap.errors import InvalidInput, UnknownName
from hessmap.records import Record
from hessmap_research.runner.claims import StudyOutcome
from hessmap_research.studies import Check, Claim, Row, Study

RANK = {"record": "RankMeasurement", "value": 7, "decidable": True, "gap": 1e8}
ROW = Row({"width": 3, "data": "digits"}, {"measured": {"loss": RANK}, "values": np.arange(3.0), "plain": 2})


def test_a_dotted_name_walks_into_the_record_and_a_plain_one_finds_the_case() -> None:
    assert ROW["width"] == 3
    assert ROW["measured.loss.gap"] == 1e8
    assert ROW.number("measured.loss") == 7.0
    np.testing.assert_array_equal(ROW.array("values"), [0, 1, 2])


def test_an_unknown_name_offers_the_near_ones() -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'measured\.loss\.gap'"):
        ROW["measured.loss.gapp"]
    assert "measured.loss.gapp" not in ROW
    assert ROW.get("nothing") is None


def test_a_name_of_the_wrong_kind_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="'values' must lead to a number; it leads to a ndarray"):
        ROW.number("values")
    with pytest.raises(InvalidInput, match="'plain' must lead to an array; it leads to a int"):
        ROW.array("plain")


def rank(value: int, decidable: bool = True, gap: float = 1e9) -> dict[str, Any]:
    return {"record": "RankMeasurement", "value": value, "decidable": decidable, "gap": gap}


def law(value: int, conjectured: str) -> dict[str, Any]:
    return {"record": "RankValue", "value": value, "kind": "conjecture", "conjectured": conjectured, "num_cases": 500}


@pytest.mark.parametrize(
    ("measured", "predicted", "check", "outcome"),
    [
        (rank(7), 7, Check("measured", "predicted"), "agrees"),
        (rank(7), 8, Check("measured", "predicted"), "disagrees"),
        (rank(7, decidable=False), 8, Check("measured", "predicted"), "undecidable"),
        (rank(7, decidable=False), 7, Check("measured", "predicted"), "undecidable"),
        (rank(7), {"value": 7, "kind": "exact"}, Check("measured", "predicted"), "agrees"),
        (rank(6), {"value": 7, "kind": "exact"}, Check("measured", "predicted"), "disagrees"),
        (rank(6), {"value": 7, "kind": "upper_bound"}, Check("measured", "predicted"), "agrees"),
        (rank(8), {"value": 7, "kind": "upper_bound"}, Check("measured", "predicted"), "disagrees"),
        (rank(8), {"value": 7, "kind": "numerical"}, Check("measured", "predicted", tolerance=0.2), "agrees"),
        (rank(9), {"value": 7, "kind": "numerical"}, Check("measured", "predicted", tolerance=0.2), "disagrees"),
        (rank(7), law(7, "value"), Check("measured", "predicted"), "agrees"),
        (rank(6), law(7, "value"), Check("measured", "predicted"), "disagrees"),
        (rank(6), law(7, "bound"), Check("measured", "predicted"), "agrees"),
        (rank(8), law(7, "bound"), Check("measured", "predicted"), "disagrees"),
        (0.95, None, Check("measured", 0.9, "at_least"), "agrees"),
        (0.85, None, Check("measured", 0.9, "at_least"), "disagrees"),
        (1.01, None, Check("measured", 1.0, "close", tolerance=0.02), "agrees"),
        (1.03, None, Check("measured", 1.0, "close", tolerance=0.02), "disagrees"),
        (math.nan, None, Check("measured", 1.0, "close", tolerance=0.02), "disagrees"),
    ],
)
def test_a_check_judges_by_its_relation(measured: Any, predicted: Any, check: Check, outcome: str) -> None:
    judgement = check.judge(Row({"width": 3}, {"measured": measured, "predicted": predicted}))
    assert judgement.outcome == outcome
    assert judgement.case == {"width": 3}


def study_of(*checks: Check, **more: Any) -> Study:
    import toy_studies

    return Study(
        name="toy/judged",
        question="Does it hold?",
        reference="none",
        cases=(),
        measure=toy_studies.square,
        view=toy_studies.VIEW,
        checks=checks,
        **more,
    )


def test_a_verdict_counts_cases_and_lists_what_speaks_against() -> None:
    study = study_of(Check("a", "predicted"), Check("b", "predicted"))
    records = [
        {"a": 1, "b": 1},
        {"a": 1, "b": 2},
        {"a": 1, "b": rank(1, decidable=False, gap=3.0)},
        {"a": 5, "b": rank(1, decidable=False)},
    ]
    rows = [Row({"width": place}, {**record, "predicted": 1}) for place, record in enumerate(records)]
    verdict = study.outcome(rows, num_failed=2)
    assert (verdict.num_agree, verdict.num_disagree, verdict.num_undecidable, verdict.num_failed) == (1, 2, 1, 2)
    assert [judgement.case["width"] for judgement in verdict.disagreements] == [1, 3]
    assert [(judgement.case["width"], judgement.gap) for judgement in verdict.undecidable] == [(2, 3.0), (3, 1e9)]
    assert not verdict.holds
    expected = "1 of 4 cases agree with the prediction, 2 disagree, 1 undecidable, 2 failed."
    assert verdict.sentence == expected


def test_what_disagrees_with_a_conjecture_is_a_counterexample_and_not_an_error_of_the_measurement() -> None:
    rows = [Row({"width": 1}, {"a": rank(8), "law": law(7, "bound")}), Row({"width": 2}, {"a": rank(7), "law": 8})]
    verdict = study_of(Check("a", "law")).outcome(rows)
    counterexample, other = verdict.disagreements
    assert (counterexample.word, other.word) == ("counterexample of a conjecture", "disagrees")
    assert verdict.sentence == "0 of 2 cases agree with the prediction, 2 disagree, 1 rank is against a conjecture."
    undecidable = Row({"width": 3}, {"a": rank(8, decidable=False), "law": law(7, "bound")})
    assert study_of(Check("a", "law")).outcome([undecidable]).undecidable[0].word == "undecidable"


def test_a_verdict_is_a_record_that_json_keeps() -> None:
    verdict = study_of(Check("a", 1.0)).outcome([Row({"width": 1}, {"a": 2})])
    assert Record.from_json(verdict.to_json()) == verdict
    with pytest.raises(AttributeError, match="cannot assign"):
        verdict.num_agree = 3  # type: ignore[misc]


def test_claims_count_in_the_verdict() -> None:
    def claims(rows: Any) -> list[Claim]:
        return [Claim("some", "rows exist", bool(rows)), Claim("three", "there are three", len(rows) == 3)]

    study = study_of(claims=claims)
    assert study.outcome([Row({}, {})] * 3).holds
    verdict = study.outcome([Row({}, {})] * 2)
    assert not verdict.holds
    assert verdict.sentence == "1 of 2 claims hold."


@pytest.mark.parametrize(
    ("outcomes", "holds", "fails", "sentence"),
    [
        ((True, None), True, False, "1 of 2 claims hold, 1 is inconclusive."),
        ((None, None), False, False, "0 of 2 claims hold, 2 are inconclusive."),
        ((None, False), False, True, "0 of 2 claims hold, 1 is inconclusive."),
    ],
)
def test_a_claim_that_the_records_do_not_decide_counts_neither_way(
    outcomes: tuple[bool | None, ...], holds: bool, fails: bool, sentence: str
) -> None:
    study = study_of(
        claims=lambda rows: [Claim(f"c-{place}", "a claim", holds) for place, holds in enumerate(outcomes)]
    )
    verdict = study.outcome([Row({}, {})])
    assert (verdict.holds, verdict.fails, verdict.sentence) == (holds, fails, sentence)
    assert Record.from_json(verdict.to_json()) == verdict


def test_a_check_judges_the_rows_that_have_its_names_and_a_misspelled_one_is_an_error() -> None:
    rows = [Row({"width": 1}, {"a": 1}), Row({"width": 2}, {"b": 1})]
    verdict = study_of(Check("a", 1.0)).outcome(rows)
    assert (verdict.num_cases, verdict.num_agree) == (2, 1)
    with pytest.raises(UnknownName, match="a name of a check must be one of width, a; got 'c'"):
        study_of(Check("a", "c")).outcome(rows)


def test_nothing_run_is_not_a_verdict_that_holds() -> None:
    verdict = study_of(Check("a", 1.0)).outcome([])
    assert not verdict.holds
    assert verdict.sentence == "No case has been run."
    assert isinstance(verdict, StudyOutcome)
