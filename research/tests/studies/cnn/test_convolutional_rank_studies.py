"""The rank studies of convolutional and locally connected networks on small cases: what they record, and verdicts."""

from __future__ import annotations

from typing import Any

import pytest
from study_rows import measured

from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap.exact import certified_rank
from hessmap.networks import Convolutional, FullyConnected, LocallyConnected, parse_network
from hessmap.records import PARTS
from hessmap_research.runner.plan import hash_of_data
from hessmap_research.studies import Claim, Row, Study, claim_id
from hessmap_research.studies.cnn import locality, rank_vs_channels, rank_vs_filter, rank_vs_samples
from hessmap_research.studies.cnn.rank_vs_channels import power_law
from hessmap_research.studies.cnn.ranks import network_and_problem, printed_bounds, rank_record

AXES = {
    "channels": rank_vs_channels.STUDY,
    "filter_size": rank_vs_filter.STUDY,
    "patch_size": locality.STUDY,
    "num_samples": rank_vs_samples.STUDY,
}
NAMES = {"outer_product": "H_o", "functional": "H_f", "loss": "H_L"}
DATA = ("digits", "mnist", "fashion_mnist", "cifar10", "gaussian")


def changed(row: Row, part: str, value: int, group: str = "measured") -> Row:
    """The row with another rank of one Hessian."""
    ranks = row[group]
    new = {**ranks[part], "value": value} if isinstance(ranks[part], dict) else value
    return Row(row.case, {**row.record, group: {**ranks, part: new}})


def claim(study: Study, rows: list[Row], name: str) -> Claim:
    return study.outcome(rows).claim(name)


@pytest.mark.parametrize("x", AXES)
@pytest.mark.parametrize("data", DATA)
def test_every_axis_has_at_least_eight_points_in_each_setting(x: str, data: str) -> None:
    points: dict[tuple[Any, ...], set[int]] = {}
    for case in AXES[x].cases_on(data):
        setting = tuple(value for name, value in case.items() if name not in (x, "network"))
        points.setdefault(setting, set()).add(case[x])
    assert min(map(len, points.values())) >= 8
    assert {case["activation"] for case in AXES[x].cases_on(data)} == {"identity", "relu"}


@pytest.mark.parametrize("study", AXES.values(), ids=lambda study: study.name)
def test_embedded_networks_have_at_most_1500_parameters(study: Study) -> None:
    networks = [parse_network(case["network"]) for data in ("digits", "gaussian") for case in study.cases_on(data)]
    assert max(network.num_parameters for network in networks) <= 1500


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
@pytest.mark.parametrize("filter_size", [3, 14, 16])
def test_ranks_of_one_convolution_are_the_predicted_ones(loss: str, filter_size: int) -> None:
    study = rank_vs_filter.STUDY
    rows = measured(study, filters=4, filter_size=filter_size, loss=loss, activation="identity")
    assert {rows[0][f"predicted.{part}.kind"] for part in PARTS} == {"exact"}
    verdict = study.outcome(rows)
    assert verdict.num_agree == 1
    assert not [found for found in verdict.claims if not found.holds and found.id != "theorem-7-not-exact"]


def test_theorem_7_is_no_equality_and_a_rank_above_it_is_seen() -> None:
    study = rank_vs_filter.STUDY
    rows = measured(study, filters=4, loss="squared", activation="identity", filter_size=14)
    assert (rows[0].number("measured.outer_product"), rows[0]["printed.outer_product"]) == (156, 160)
    assert "not in conv-1x16-4x14-10 (squared)" in claim(study, rows, "theorem-7-not-exact").detail
    assert claim(study, rows, "printed-bounds").holds
    above = [changed(rows[0], "outer_product", 161)]
    assert not claim(study, above, "printed-bounds").holds
    assert study.outcome(above).num_disagree == 1


def test_relu_keeps_the_functional_rank_and_leaves_the_bounds_of_the_others() -> None:
    study = rank_vs_filter.STUDY
    rows = measured(study, filters=2, loss="squared", activation="relu", filter_size=5)
    assert rows[0].number("measured.outer_product") == rows[0]["num_parameters"] - 2
    assert claim(study, rows, "theorem-8-relu").holds
    assert claim(study, rows, "relu-above-linear-bounds").holds
    within = [changed(changed(rows[0], "outer_product", 5), "loss", 5)]
    assert not claim(study, within, "relu-above-linear-bounds").holds
    assert not claim(study, [changed(rows[0], "functional", 1)], "theorem-8-relu").holds


def test_two_convolutions_are_within_the_bounds_and_the_verdict_can_fail() -> None:
    study = rank_vs_channels.STUDY
    rows = measured(study, loss="squared", activation="identity", channels=3)
    assert {rows[0][f"predicted.{part}.kind"] for part in PARTS} == {"conjecture"}
    assert [rows[0][f"predicted.{part}.conjectured"] for part in PARTS] == ["value", "bound", "value"]
    assert study.outcome(rows).holds
    for part, rank in zip(PARTS, (64, 119, 128), strict=True):
        assert rows[0].number(f"predicted.{part}") == rank
        assert study.outcome([changed(rows[0], part, rank + 1)]).num_disagree == 1
        assert not claim(study, [changed(rows[0], part, 1)], claim_id("prediction-is-rank", part)).holds


def growing(activation: str, ranks: dict[int, int]) -> list[Row]:
    """Rows of rank-vs-channels whose loss Hessian and functional Hessian have these ranks."""
    (row,) = measured(rank_vs_channels.STUDY, loss="squared", activation=activation, channels=2)
    rows = []
    for channels, rank in ranks.items():
        moved = changed(changed(changed(row, "loss", rank), "functional", rank - 160), "outer_product", 160)
        parameters = 7 * channels**2 + 47 * channels
        case = {**row.case, "channels": channels}
        rows.append(Row(case, {**moved.record, "num_parameters": parameters}))
    return rows


def test_growth_as_the_square_root_is_told_from_growth_as_the_parameters() -> None:
    study = rank_vs_channels.STUDY
    linear = growing("identity", {channels: 40 * channels + 159 for channels in range(6, 12)})
    root = claim(study, linear, "linear-exponent-squared-digits")
    assert root.holds
    assert root.detail.startswith("exponent of H_L 0.447 (0.425 to 0.469), of H_f 0.628 (0.593 to 0.663); of the bound")
    assert claim(study, linear, "linear-steps-squared-digits").detail == "added: H_o 0, H_f 40, H_L 40"
    bent = [*linear[:-1], changed(linear[-1], "functional", 1)]
    assert not claim(study, bent, "linear-steps-squared-digits").holds
    full = {channels: 7 * channels**2 + 47 * channels for channels in range(6, 12)}
    assert not claim(study, growing("identity", full), "linear-exponent-squared-digits").holds
    assert claim(study, growing("relu", full), "relu-linear-growth-squared-digits").holds
    slow = {channels: 40 * channels for channels in range(6, 12)}
    assert not claim(study, growing("relu", slow), "relu-linear-growth-squared-digits").holds


def test_a_power_law_has_an_interval_that_holds_its_exponent() -> None:
    noisy = power_law([1.0, 10.0, 100.0, 1000.0], [1.1, 9.0, 105.0, 960.0])
    assert noisy.low < 1.0 < noisy.high
    assert noisy.low < noisy.exponent < noisy.high
    with pytest.raises(InvalidInput, match="a power law needs three points or more; got 2 and 2"):
        power_law([1.0, 2.0], [1.0, 2.0])


def test_few_samples_limit_the_ranks_and_more_of_the_same_ranks_change_nothing() -> None:
    study = rank_vs_samples.STUDY
    rows = [
        row
        for count in (2, 20, 30)
        for row in measured(study, num_hidden=1, loss="squared", activation="identity", num_samples=count)
    ]
    assert [row["data_ranks.input_rank"] for row in rows] == [2, 16, 16]
    assert [row.number("measured.outer_product") for row in rows] == [20, 160, 160]
    verdict = study.outcome(rows)
    assert verdict.holds
    assert claim(study, rows, "samples-change-nothing").detail == "in 1 of 1 steps"
    assert not claim(study, [*rows[:2], changed(rows[2], "loss", 7)], "samples-change-nothing").holds
    assert not claim(study, [changed(rows[0], "outer_product", 19), *rows[1:]], "input-rank-limits-1").holds
    late = [*rows[:2], changed(rows[2], "functional", 7)]
    assert not claim(study, late, "functional-unaffected").holds


def test_relu_gains_the_outputs_with_each_sample_until_all_but_the_rescalings_are_taken() -> None:
    study = rank_vs_samples.STUDY
    rows = [
        row
        for count in (4, 20, 100)
        for row in measured(study, num_hidden=1, loss="squared", activation="relu", num_samples=count)
    ]
    assert [row.number("measured.outer_product") for row in rows] == [40, 200, 636]
    assert claim(study, rows, "relu-sample-rank").holds
    assert claim(study, rows, "relu-leaves-linear-bound").holds
    lower = [changed(row, "outer_product", 1) for row in rows]
    assert not claim(study, lower, "relu-sample-rank").holds
    assert not claim(study, lower, "relu-leaves-linear-bound").holds


def test_local_and_shared_networks_have_the_printed_ranks_but_for_fact_14() -> None:
    study = locality.STUDY
    rows = measured(study, filters=2, patch_size=6, activation="identity")
    assert [row["kind"] for row in rows] == [locality.FULL, locality.LOCAL, locality.SHARED]
    verdict = study.outcome(rows)
    assert verdict.holds
    assert verdict.num_agree == 3
    shared = rows[-1]
    assert shared.number("measured.loss") == 52  # printed: 37
    assert not claim(study, [changed(shared, "loss", 37)], "fact-14-fails").holds


def test_fact_14_is_asked_of_shared_filters_of_one_patch_too() -> None:
    (row,) = (
        row for row in measured(locality.STUDY, filters=2, patch_size=24, activation="identity", kind=locality.SHARED)
    )
    assert row.number("measured.loss") == 58  # printed: 49; Fact 13, of filters that are not shared, has 58
    assert claim(locality.STUDY, [row], "fact-14-fails").holds


def test_ranks_fall_with_locality() -> None:
    study = locality.STUDY
    rows = measured(study, filters=2, patch_size=6, activation="identity")
    shared = rows[-1]
    assert not claim(study, [*rows[:2], changed(shared, "loss", 500)], "rank-falls-with-locality").holds
    assert not claim(study, [changed(rows[1], "outer_product", 1)], "theorems-9-10-outer-product").holds


def test_the_printed_bounds_of_shared_patches_are_those_of_a_convolution_with_their_stride() -> None:
    shared = printed_bounds(LocallyConnected(6, 4, 3, 5, shared_weights=True), "cross_entropy")
    strided = printed_bounds(Convolutional(24, (1, 3), (4,), (4,), outputs=5), "cross_entropy")
    assert shared == strided == (3 * (4 + 24 - 3), 24, 3 * (4 + 24 - 3) + 24)
    assert printed_bounds(LocallyConnected(6, 4, 3, 5), "squared") == (6 * 3 * 6, 6 * 24, 6 * 3 * 6 + 6 * 24)
    assert printed_bounds(FullyConnected((24, 3, 5)), "squared").outer_product == 3 * (24 + 5 - 3)
    with pytest.raises(UnsupportedNetwork, match="convolutional networks; got a str"):
        printed_bounds("24-3-5", "squared")


def test_gaussian_data_are_drawn_from_the_case_and_have_a_hash() -> None:
    case = {"data": "gaussian", "network": "conv-1x6-2x3-4", "loss": "squared", "seed": 1, "num_samples": 5}
    network, problem = network_and_problem(case)
    assert isinstance(network, Convolutional)
    assert problem.inputs.shape == (5, 6)
    assert problem.targets.shape == (5, 4)
    _, other = network_and_problem({**case, "seed": 2})
    assert (problem.inputs != other.inputs).all()
    assert hash_of_data("gaussian") == hash_of_data("gaussian") != ""


def test_a_network_with_fewer_inputs_than_pixels_leaves_the_last_ones_out() -> None:
    case = {"data": "digits", "network": "local-4x6-2-5", "loss": "squared", "seed": 0}
    _, problem = network_and_problem(case)
    _, whole = network_and_problem({**case, "network": "25-2-5"})
    assert problem.inputs.shape == (300, 24)
    assert (problem.inputs == whole.inputs[:, :24]).all()


@pytest.mark.parametrize("network", ["conv-1x16-2x14-10", "conv-1x16-2x14-10 relu", "local-3x8-2-5 relu shared"])
def test_measured_ranks_are_those_of_exact_arithmetic(network: str) -> None:
    case = {"data": "digits", "network": network, "loss": "squared", "seed": 0, "num_samples": 40}
    architecture, problem = network_and_problem(case)
    record = rank_record(architecture, problem)
    assert {part: record["measured"][part].value for part in PARTS} == {
        part: certified_rank(problem, part).value for part in PARTS
    }
