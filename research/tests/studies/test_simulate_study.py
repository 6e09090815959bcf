"""The simulation of large networks: numbers by hand, and the claims that its verdict makes."""

from __future__ import annotations

import pytest

from hessmap_research.studies import Row
from hessmap_research.studies.fcn.simulate import STUDY, claims, measure

SMALL = [row for row in STUDY.cases_on("") if row["num_layers"] <= 1000]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [Row(case, measure(case)) for case in SMALL]


def test_the_cases_reach_a_million_in_width_and_in_depth() -> None:
    cases = STUDY.cases_on("")
    assert max(case["width"] for case in cases) == 10**6
    for sweep in ("depth", "bias"):
        assert max(case["num_layers"] for case in cases if case["sweep"] == sweep) == 10**6


def test_ranks_and_parameters_agree_with_the_formula_by_hand() -> None:
    record = measure({"sweep": "width", "width": 50, "num_layers": 4, "input_dim": 2352, "output_dim": 10})
    q, hidden = 10, 3 * 50
    assert record["num_parameters"] == 2352 * 50 + 2 * 50 * 50 + 50 * 10
    outer = q * (2352 + 10 - q)
    assert record["rank"] == {
        "outer_product": outer,
        "functional": 2 * q * hidden + 2 * q * q - 4 * q * q,
        "loss": outer + 2 * q * hidden - 3 * q * q,
    }


def test_with_bias_the_fraction_is_that_of_the_corrected_formula_by_hand() -> None:
    record = measure({"sweep": "bias", "width": 1000, "num_layers": 3, "input_dim": 784, "output_dim": 100})
    t, hidden = 100, 2000
    outer = 100 * 784 + 100
    rank = outer + 2 * t * hidden - 2 * t * (t - 1)
    num_parameters = 785 * 1000 + 1001 * 1000 + 1001 * 100
    assert record["fraction_with_bias"] == pytest.approx(rank / num_parameters, rel=1e-15)


def test_the_claims_of_the_paper_hold_and_can_fail(rows: list[Row]) -> None:
    crossing, limit, bias = claims(rows)
    assert crossing.holds
    assert crossing.detail == "between widths 200 and 500"
    assert limit.holds
    assert bias.holds
    raised = [Row(row.case, {**row.record, "lowered_by": -1e-3}) for row in rows]
    assert not list(claims(raised))[2].holds
    turned = [Row(row.case, {**row.record, "fraction": dict.fromkeys(row["fraction"], 0.5)}) for row in rows]
    assert [claim.holds for claim in claims(turned)] == [False, False, True]


def test_the_claims_speak_only_of_what_is_there(rows: list[Row]) -> None:
    assert [claim.id for claim in claims([row for row in rows if row["sweep"] == "bias"])] == ["bias-lowers-fraction"]
