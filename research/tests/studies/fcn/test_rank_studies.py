"""The rank studies on small cases: what they record, that they agree, and that their verdicts can fail."""

from __future__ import annotations

from operator import lt
from typing import Any

import pytest
import torch
from study_rows import as_stored, changed, measured

from hessmap.networks import FullyConnected
from hessmap.problem.problem import Problem
from hessmap.records import PARTS
from hessmap_research.studies import Row, Study
from hessmap_research.studies.fcn import bias, effective_parameters, rank_sweeps
from hessmap_research.studies.fcn.effective_parameters import _claim, _neighbours
from hessmap_research.studies.fcn.rank_sweeps import network_and_problem, rank_record
from hessmap_research.studies.hessian_ranks import data_ranks

SWEEPS = {"num_samples": rank_sweeps.SAMPLES, "width": rank_sweeps.WIDTH, "num_hidden": rank_sweeps.DEPTH}
DATA = ("digits", "mnist", "fashion_mnist", "cifar10")


@pytest.mark.parametrize("x", SWEEPS)
@pytest.mark.parametrize("data", DATA)
def test_a_sweep_has_at_least_ten_points_for_each_loss_and_each_initialisation(x: str, data: str) -> None:
    cases = SWEEPS[x].cases_on(data)
    points: dict[tuple[str, str], set[int]] = {}
    for case in cases:
        points.setdefault((case["loss"], case["init"]), set()).add(case[x])
    assert min(map(len, points.values())) >= 10
    assert {loss for loss, _ in points} == {"squared", "cross_entropy", "log_cosh"}
    assert len(points) == {"digits": 9, "cifar10": 5}.get(data, 3)


@pytest.mark.parametrize(
    "study", [*SWEEPS.values(), bias.STUDY, effective_parameters.STUDY], ids=lambda study: study.name
)
def test_embedded_networks_have_at_most_1500_parameters(study: Study) -> None:
    for case in study.cases_on("digits"):
        network = FullyConnected(case["widths"], bias=case.get("bias", False))
        assert network.num_parameters <= 1500


def test_on_real_data_the_networks_are_those_of_the_paper() -> None:
    assert {case["widths"] for case in rank_sweeps.SAMPLES.cases_on("mnist")} == {(64, 50, 20, 20, 20, 10)}
    assert (64, 45, 45, 10) in {case["widths"] for case in rank_sweeps.WIDTH.cases_on("cifar10")}
    assert (16, *[25] * 9, 10) in {case["widths"] for case in rank_sweeps.DEPTH.cases_on("cifar10")}


@pytest.mark.parametrize(
    ("x", "value", "init"), [("num_samples", 5, "uniform"), ("width", 4, "gaussian"), ("num_hidden", 3, "orthogonal")]
)
def test_measured_ranks_agree_with_the_formulas_for_every_loss(x: str, value: int, init: str) -> None:
    study = SWEEPS[x]
    verdict = study.outcome(measured(study, **{x: value, "init": init}))
    assert verdict.holds
    assert verdict.num_agree == 3


def test_a_wrong_rank_an_undecidable_one_and_doubtful_data_show_in_the_verdict() -> None:
    study = rank_sweeps.WIDTH
    (row,) = measured(study, width=2, loss="squared", init="gaussian")
    wrong = changed(row, predicted={**row["predicted"], "functional": row["predicted.functional"] + 1})
    verdict = study.outcome([wrong])
    assert not verdict.holds
    assert [judgement.measured_name for judgement in verdict.disagreements] == ["measured.functional"]
    loss = {**row["measured.loss"], "decidable": False}
    verdict = study.outcome([changed(row, measured={**row["measured"], "loss": loss})])
    assert verdict.num_undecidable == 1
    assert [claim.holds for claim in verdict.claims] == [False, True]
    verdict = study.outcome([changed(row, data_ranks={**row["data_ranks"], "are_decidable": False})])
    assert [claim.holds for claim in verdict.claims] == [True, False]


def test_the_claims_about_width_depth_and_samples_hold_and_can_fail() -> None:
    wide = measured(rank_sweeps.WIDTH, width=10, loss="squared", init="gaussian")
    wide += measured(rank_sweeps.WIDTH, width=11, loss="squared", init="gaussian")
    deep = [
        row
        for depth in (1, 2)
        for row in measured(rank_sweeps.DEPTH, num_hidden=depth, loss="log_cosh", init="uniform")
    ]
    for study, rows in ((rank_sweeps.WIDTH, wide), (rank_sweeps.DEPTH, deep)):
        assert study.outcome(rows).claims[-1].holds
        raised = [rows[0], changed(rows[1], measured_fraction={**rows[1]["measured_fraction"], "loss": 0.99})]
        assert not study.outcome(raised).claims[-1].holds
    few = deep[0].case | {"num_samples": 5, "widths": (16, 3, 5)}
    first, second = (as_stored({**few, "num_samples": count}, deep[0].record) for count in (5, 6))
    assert list(rank_sweeps.samples_claims([first, second]))[-1].holds
    other = changed(second, measured={**second["measured"], "loss": {**second["measured.loss"], "value": 1}})
    assert not list(rank_sweeps.samples_claims([first, other]))[-1].holds


def test_the_ranks_of_the_data_are_those_of_these_data() -> None:
    """Two samples that are not centred: r = 2, rc = 1, and two residuals."""
    inputs, targets = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]]).double(), torch.tensor([0, 1])
    problem = Problem(FullyConnected((3, 4, 2)).build(), "squared", inputs, targets)
    assert data_ranks(problem, bias=False) == ({"input_rank": 2, "centred_input_rank": 1, "residual_rank": 2}, True)
    with_bias = FullyConnected((3, 4, 2), bias=True)
    problem = Problem(with_bias.build(), "squared", inputs, targets)
    record = rank_record(with_bias, problem)
    assert record["predicted"]["outer_product"] == record["measured"]["outer_product"].value == 4


def test_with_bias_the_place_of_a_bottleneck_matters_and_the_printed_formula_cannot_know() -> None:
    rows = measured(bias.STUDY, sweep="bottleneck", narrow=2, loss="squared")
    assert [row["position"] for row in rows] == [1, 2, 3]
    verdict = bias.STUDY.outcome(rows)
    assert verdict.holds
    assert len({row["printed.loss"] for row in rows}) == 1
    assert len({row.number("measured.loss") for row in rows}) == 3
    same = [changed(row, measured=rows[0]["measured"]) for row in rows]
    assert not list(bias.claims(same))[-1].holds


def test_with_bias_the_printed_formulas_hold_where_they_are_meant_for() -> None:
    rows = measured(bias.STUDY, sweep="depth", num_hidden=2) + measured(bias.STUDY, sweep="samples", num_samples=5)
    verdict = bias.STUDY.outcome(rows)
    assert verdict.holds
    assert [claim.detail for claim in verdict.claims[2:]] == ["in 1 of 1 decidable cases"] * 2
    assert rows[0]["beyond_print.measured"] == dict.fromkeys(PARTS, 0)
    assert rows[1]["data_ranks.input_rank"] == rows[1]["data_ranks.centred_input_rank"] + 1


def test_a_stationary_last_bias_has_residuals_that_sum_to_zero() -> None:
    (row,) = measured(bias.STUDY, sweep="stationary", narrow=3)
    assert row["data_ranks.mean_residual_is_zero"]
    assert bias.STUDY.outcome([row]).holds
    _, problem = network_and_problem(row.case)
    assert not data_ranks(problem, bias=True)[0]["mean_residual_is_zero"]


def test_effective_parameters_of_a_linear_network_rise_to_its_exact_rank() -> None:
    (row,) = measured(effective_parameters.STUDY, width=10, activation="identity", bias=False, state="initial")
    assert row.number("measured") == row["exact"] == row["count.rank"]
    counts = row.array("effective")
    assert (counts[1:] > counts[:-1]).all()
    assert counts[-1] == pytest.approx(row["exact"], abs=0.1)
    by_hand = dict(zip(row.array("epsilon").tolist(), counts, strict=True))
    assert row["count.effective_1e-2"] == pytest.approx(min(by_hand.items(), key=lambda item: abs(item[0] - 1e-2))[1])
    assert row["fraction.nuclear_ratio"] == pytest.approx(row["count.nuclear_ratio"] / row["num_parameters"])


def test_training_leaves_the_rank_of_a_linear_network_and_lowers_the_other_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("HESSMAP_MODELS", str(tmp_path))
    rows = measured(effective_parameters.STUDY, width=10, activation="identity", bias=False)
    assert [row["state"] for row in rows] == ["initial", "trained"]
    verdict = effective_parameters.STUDY.outcome(rows)
    assert verdict.holds
    assert verdict.num_agree == 2
    assert len(verdict.claims) == 2
    assert rows[1]["risk"] < 0.1 * rows[0]["risk"]
    before = [
        Row({**row.case, "state": "trained" if row["state"] == "initial" else "initial"}, row.record) for row in rows
    ]
    assert [claim.holds for claim in effective_parameters.STUDY.outcome(before).claims] == [True, False]


def test_a_claim_compares_what_differs_in_one_field_alone() -> None:
    rows = [Row({"width": width, "seed": seed}, {"value": value}) for width, seed, value in CLAIMED]
    claim = _claim("falls", "It falls", _neighbours(rows, ("width",)), "value", lt)
    assert (claim.holds, claim.detail) == (False, "in 2 of 3 comparisons")
    claim = _claim("falls", "It falls", _neighbours(rows, ("width",), ends_only=True), "value", lt)
    assert (claim.holds, claim.detail) == (True, "in 2 of 2 comparisons")
    assert _neighbours(rows[:1], ("width",)) == []


CLAIMED = ((3, 0, 1.0), (1, 0, 2.0), (2, 0, 2.5), (1, 1, 2.0), (2, 1, 1.0))
