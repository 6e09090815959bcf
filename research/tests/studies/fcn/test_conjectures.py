"""Random networks against rank formulas: the draws are what they say, the counts are right, the verdicts can fail."""

from __future__ import annotations

import random

import pytest

from hessmap_research.runner.row import Row
from hessmap_research.studies.random_networks.fully_connected import (
    BIAS_IN_SOME_LAYERS,
    CONJECTURES,
    DEFICIENT_PRODUCTS,
    Setting,
    printed_ranks,
    random_setting,
)

FAMILIES = ("deep, no bias", "deep, no bias, bottleneck", "deep, bias", "deep, bias, bottleneck")
BOTTLENECK = {
    "family": "deep, bias, bottleneck",
    "inputs": "rc = r",
    "residual": "generic",
    "loss": "squared",
    "num_networks": 8,
    "batch": 0,
}
PLAIN = {**BOTTLENECK, "family": "deep, no bias"}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [Row(case, CONJECTURES.measure(case)) for case in (PLAIN, BOTTLENECK)]


def test_the_study_runs_twenty_thousand_networks() -> None:
    assert sum(case["num_networks"] for case in CONJECTURES.cases_on("")) > 20_000


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("residual", ["generic", "low rank", "zero mean"])
def test_a_drawn_setting_belongs_to_its_family(family: str, residual: str) -> None:
    draw = random.Random(0)
    for inputs, lack in (("rc = r", 0), ("rc = r - 1", 1)):
        for loss in ("squared", "cross_entropy"):
            setting = random_setting(draw, family, inputs, residual, loss)
            assert setting.bias == ("no bias" not in family)
            assert setting.has_bottleneck == family.endswith("bottleneck")
            assert setting.centred_input_rank == setting.input_rank - lack
            assert setting.mean_residual_is_zero == (residual == "zero mean")
            assert len(setting.widths) > 2


def test_the_printed_formulas_are_asked_with_every_reading() -> None:
    setting = Setting((6, 5, 4), False, "squared", 6, 6, 1, False)
    assert printed_ranks(setting) == {"outer_product": (24,), "functional": (10,), "loss": (48, 18)}
    with_bias = Setting((5, 1, 3, 3), True, "squared", 5, 5, 3, False)
    assert printed_ranks(with_bias)["outer_product"] == (1 * (5 + 3 - 1) + 3,)


def test_ours_is_right_everywhere_and_the_paper_without_bottleneck(rows: list[Row]) -> None:
    plain, bottleneck = rows
    for row in rows:
        assert set(row["ours_right"].values()) == {8}
        assert row["counterexamples_of_ours"] == []
        assert row["failure_bound"] < 1e-12
    assert set(plain["paper_right"].values()) == {8}
    assert plain["counterexamples_of_paper"] == []
    assert bottleneck["paper_right"]["loss"] < 8


def test_a_kept_counterexample_is_one(rows: list[Row]) -> None:
    from hessmap.exact import generic_rank
    from hessmap.networks import FullyConnected

    example = next(item for item in rows[1]["counterexamples_of_paper"] if item["part"] == "loss")
    rank, centred, residual = example["r_rc_residual"]
    network = FullyConnected(example["widths"], bias=True)
    ranks = {"input_rank": rank, "centred_input_rank": centred, "residual_rank": residual}
    assert generic_rank(network, "loss", **ranks, seed=7).value == example["exact"]
    assert example["exact"] not in example["claimed"]


def test_equal_cases_draw_equal_networks(rows: list[Row]) -> None:
    assert CONJECTURES.measure(BOTTLENECK) == rows[1].record


def test_the_verdict_counts_families_and_can_fail(rows: list[Row]) -> None:
    assert CONJECTURES.outcome(rows).holds
    wrong = {**rows[0].record, "ours_right": {**rows[0]["ours_right"], "loss": 7}}
    verdict = CONJECTURES.outcome([Row(PLAIN, wrong), rows[1]])
    assert verdict.num_disagree == 1
    assert [claim.holds for claim in verdict.claims] == [True, True, False, True, True]
    paper_fails = {**rows[0].record, "paper_right": {**rows[0]["paper_right"], "loss": 7}}
    paper_holds = {**rows[1].record, "paper_right": rows[0]["paper_right"]}
    found = CONJECTURES.outcome([Row(PLAIN, paper_fails), Row(BOTTLENECK, paper_holds)]).claims
    assert [claim.holds for claim in found] == [True, True, True, False, False]


@pytest.mark.parametrize(
    "case",
    [
        {"inputs": "rc = r", "residual": "generic", "loss": "cross_entropy", "num_networks": 8, "batch": 0},
        {"inputs": "rc = r - 1", "residual": "low rank", "loss": "squared", "num_networks": 8, "batch": 0},
        {"inputs": "rc = r", "residual": "zero mean", "loss": "log_cosh", "num_networks": 8, "batch": 0},
    ],
)
def test_a_bias_in_some_layers_is_predicted(case: dict[str, object]) -> None:
    row = Row(case, BIAS_IN_SOME_LAYERS.measure(case))
    assert row["counterexamples"] == []
    assert BIAS_IN_SOME_LAYERS.outcome([row]).holds
    wrong = {**row.record, "right": {**row["right"], "functional": 7}}
    assert not BIAS_IN_SOME_LAYERS.outcome([Row(case, wrong)]).holds


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_products_that_lose_rank_are_predicted_and_break_the_printed_formulas(loss: str) -> None:
    case = {"num_layers": 4, "loss": loss, "num_networks": 8, "batch": 0}
    row = Row(case, DEFICIENT_PRODUCTS.measure(case))
    assert row["counterexamples"] == []
    assert DEFICIENT_PRODUCTS.outcome([row]).holds
    assert row["printed_right"]["loss"] < 8


def test_a_sum_of_intervals_has_the_product_ranks_it_says() -> None:
    from hessmap_research.studies.random_networks.interval_networks import SumOfIntervals

    network = SumOfIntervals(2, ((0, 0), (0, 2), (1, 2)))
    assert network.widths == (2, 2, 2)
    assert network.product_ranks == ((2,), (1, 2), (1, 2, 2))
