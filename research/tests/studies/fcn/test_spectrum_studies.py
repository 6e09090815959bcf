"""Studies of spectra, kernels, ReLU bounds and training on small cases: they agree, and their verdicts can fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from study_rows import as_stored, changed, measured

from hessmap.datasets import Data, digits, linear_teacher
from hessmap.networks import FullyConnected
from hessmap.problem.problem import Problem
from hessmap.records import PARTS
from hessmap_research.runner.model_cache import use_models_folder
from hessmap_research.studies import Row
from hessmap_research.studies.along_training import Snapshot, _evenly_spread
from hessmap_research.studies.fcn import (
    nonlinear_spectrum,
    ntk,
    reconstruction,
    relu_bounds,
    spectrum_plateaus,
    training,
)
from hessmap_research.studies.fcn.relu_bounds import activation_patterns
from hessmap_research.studies.fcn.training import _record_along_training, bottleneck_critical_point
from hessmap_research.studies.plotted_curves import few_places

SMALL: dict[str, Any] = {"data": "digits", "network": "16-6-5-4", "loss": "squared", "inputs": "as they are", "seed": 0}


# Plateaus


def test_repeated_eigenvalues_of_the_outer_product_are_counted_as_the_theorem_says() -> None:
    rows = measured(spectrum_plateaus.STUDY, source="mixture", penultimate_width=3, hidden=(8,), loss="squared")
    assert {row["activation"] for row in rows} == {"identity", "tanh", "relu"}
    verdict = spectrum_plateaus.STUDY.outcome(rows)
    assert verdict.num_agree == len(rows) == 6
    linear = next(row for row in rows if row["activation"] == "identity" and not row["bias"])
    assert (linear["num_plateaus"], linear["fewest"], linear["most"]) == (3, 17, 17)
    assert np.isfinite(linear.array("repeated")).sum() == 3 * 17
    for spoiled in ({"fewest": 16}, {"most": 18}, {"num_plateaus": 2}, {"largest": 16}):
        assert spectrum_plateaus.STUDY.outcome([changed(linear, **spoiled)]).num_disagree == 1


def test_other_losses_repeat_no_eigenvalue_and_the_check_can_fail() -> None:
    rows = measured(spectrum_plateaus.STUDY, source="images", penultimate_width=3, loss="log_cosh")
    assert spectrum_plateaus.STUDY.outcome(rows).num_agree == len(rows) == 1
    assert spectrum_plateaus.STUDY.outcome([changed(rows[0], most=2)]).num_disagree == 1


def test_units_that_are_never_active_together_add_copies_beyond_the_active_count() -> None:
    fields = {"source": "images", "penultimate_width": 3, "hidden": (), "activation": "relu", "bias": False}
    (row,) = measured(spectrum_plateaus.STUDY, **fields)
    assert (row["printed"], row["smallest"], row["fewest"]) == (7, 8, 9)
    (claim,) = spectrum_plateaus.claims([row])
    assert claim.holds
    (claim,) = spectrum_plateaus.claims([Row({**row.case, "activation": "tanh"}, row.record)])
    assert not claim.holds


def test_the_functional_spectrum_is_predicted_eigenvalue_by_eigenvalue() -> None:
    (row,) = measured(spectrum_plateaus.STUDY, part="functional", source="mixture", output_dim=4)
    assert row["num_plateaus"] == row["expected_plateaus"] == 8
    assert row["fewest"] == row["most"] == 15
    assert row["deviation"] < 1e-14
    assert spectrum_plateaus.STUDY.outcome([row]).holds
    assert not spectrum_plateaus.STUDY.outcome([changed(row, deviation=1e-9)]).holds


# Non-linear spectra and reconstruction


@pytest.fixture(scope="module")
def small_networks() -> dict[str, Row]:
    rows = {}
    for activation in ("identity", "relu", "tanh"):
        case = {**SMALL, "activation": activation}
        record = {**nonlinear_spectrum.measure(case), **reconstruction.measure(case)}
        rows[activation] = as_stored(case, record)
    return rows


def test_linear_rows_hold_an_exact_theorem_and_others_an_upper_bound(small_networks: dict[str, Row]) -> None:
    linear, relu, tanh = (small_networks[name] for name in ("identity", "relu", "tanh"))
    assert {row["theorem.loss.kind"] for row in (relu, tanh)} == {"upper_bound"}
    assert linear["theorem.loss.kind"] == "exact"
    assert all(linear.number(f"rank.{part}") == linear[f"linear_formula.{part}"] for part in PARTS)
    assert all(relu.number(f"rank.{part}") == relu.number(f"certified.{part}") for part in PARTS)
    assert "certified" not in tanh
    assert nonlinear_spectrum.STUDY.outcome([linear, relu, tanh]).num_agree == 3


@pytest.mark.parametrize("activation", ["identity", "relu", "tanh"])
def test_each_check_of_a_nonlinear_case_can_fail(small_networks: dict[str, Row], activation: str) -> None:
    row = small_networks[activation]
    for part in PARTS:
        theorem = {**row["theorem"], part: {**row[f"theorem.{part}"], "value": row.number(f"rank.{part}") - 1}}
        assert reconstruction.STUDY.outcome([changed(row, theorem=theorem)]).num_disagree == 1
    assert reconstruction.STUDY.outcome([changed(row, sample_bound=1)]).num_disagree == 1


def test_the_error_at_the_formula_is_on_the_curve_of_errors(small_networks: dict[str, Row]) -> None:
    for row in small_networks.values():
        for part in PARTS:
            kept, errors = row.array("kept"), row.array(f"error.{part}")
            assert (np.diff(errors) <= 1e-15).all()
            rank = row[f"linear_formula.{part}"]
            before, after = errors[kept <= rank], errors[kept >= rank]
            assert after[0] * 0.999 <= row[f"error_at_formula.{part}"] <= before[-1] * 1.001
    assert small_networks["identity"]["error_at_formula.loss"] < 1e-14


def test_claims_of_spectrum_and_reconstruction_can_fail(small_networks: dict[str, Row]) -> None:
    relu, tanh = small_networks["relu"], small_networks["tanh"]
    large = changed(tanh, first_beyond_formula=dict.fromkeys(PARTS, 0.5), error_at_formula=dict.fromkeys(PARTS, 0.5))
    assert not any(claim.holds for claim in nonlinear_spectrum.STUDY.outcome([large]).claims)
    assert not any(claim.holds for claim in reconstruction.STUDY.outcome([large]).claims)
    certified = {part: {**relu[f"certified.{part}"], "value": 0} for part in PARTS}
    *_, inflated, below = nonlinear_spectrum.STUDY.outcome([changed(relu, certified=certified)]).claims
    assert not inflated.holds
    assert not below.holds


def test_the_printed_error_is_asked_of_every_seed_of_the_network_that_it_was_printed_for(
    small_networks: dict[str, Row],
) -> None:
    relu = small_networks["relu"]
    published = {**relu.case, "network": "64-30-20-10", "data": "mnist"}

    def seeds(*errors: float) -> list[Row]:
        return [
            Row({**published, "seed": seed}, {**relu.record, "error_at_formula": dict.fromkeys(PARTS, error)})
            for seed, error in enumerate(errors)
        ]

    def outcomes(rows: list[Row]) -> dict[str, str]:
        return {claim.id: claim.outcome for claim in nonlinear_spectrum.STUDY.outcome(rows).claims}

    small = "small-error-64-30-20-10-mnist-squared"
    assert "figure-7" not in outcomes([relu])
    assert outcomes(seeds(2e-5, 1e-5)).items() >= {"figure-7": "holds", small: "holds"}.items()
    assert outcomes(seeds(1e-5, 3e-5)).items() >= {"figure-7": "does not hold", small: "holds"}.items()
    assert outcomes(seeds(1e-5, 0.012))[small] == "does not hold"


def test_standardised_inputs_are_compared_with_the_same_network_on_plain_ones(small_networks: dict[str, Row]) -> None:
    plain = small_networks["relu"]
    other = Row({**plain.case, "inputs": "standardised"}, plain.record)
    claims = [
        claim for claim in reconstruction.STUDY.outcome([plain, other]).claims if claim.id.startswith("standardised")
    ]
    assert len(claims) == 3
    assert not any(claim.holds for claim in claims)


def test_every_network_of_the_digits_has_at_most_1500_parameters_and_the_papers_are_as_printed() -> None:
    for study in (nonlinear_spectrum.STUDY, reconstruction.STUDY):
        by_data = {data: {case["network"] for case in study.cases_on(data)} for data in ("digits", "mnist")}
        assert max(FullyConnected.parse(name).num_parameters for name in by_data["digits"]) <= 1500
        assert by_data["mnist"] == {"64-30-20-10", "49-50-40-30-10"}
        for data in by_data:
            settings = {(case["activation"], case["loss"]) for case in study.cases_on(data)}
            assert len(settings) == 8


def test_few_places_keep_both_ends() -> None:
    places = few_places(1280)
    assert (places[0], places[-1]) == (1, 1280)
    assert (np.diff(places) > 0).all()


# Tangent kernel


def test_the_rank_of_the_tangent_kernel_follows_the_formula_with_and_without_bias() -> None:
    rows = [row for count in (2, 20) for row in measured(ntk.STUDY, num_samples=count)]
    verdict = ntk.STUDY.outcome(rows)
    assert verdict.num_agree == 4
    assert verdict.holds
    plain = next(row for row in rows if not row["bias"] and row["num_samples"] == 20)
    assert plain.number("measured.full") == 200
    assert ntk.STUDY.outcome([changed(plain, predicted={**plain["predicted"], "trace": 21})]).num_disagree == 1


def test_the_claim_about_the_uncentred_rank_can_fail() -> None:
    rows = measured(ntk.STUDY, num_samples=5, bias=True)
    (claim,) = ntk.claims(rows)
    assert claim.holds
    full = {**rows[0]["measured"], "full": {**rows[0]["measured.full"], "value": 10**6}}
    (claim,) = ntk.claims([changed(rows[0], measured=full)])
    assert not claim.holds


# ReLU bounds


def test_bounds_hold_against_certified_ranks_and_the_functional_formula_is_exact() -> None:
    rows = measured(relu_bounds.STUDY, hidden=(5,), output_dim=2, num_samples=25)
    rows += measured(relu_bounds.STUDY, hidden=(8, 6), num_samples=25, seed=0)
    assert relu_bounds.STUDY.outcome(rows).num_agree == len(rows) == 6
    shallow = rows[0]
    assert shallow["groups"] <= shallow["theorem_9"]
    for row in rows:
        bounds = [row[name] for name in ("groups", "theorem_9", "fact_11", "sample_bound") if name in row]
        assert row["tightest"] == min(bounds)
        assert relu_bounds.STUDY.outcome([changed(row, tightest=row["outer_product"] - 1)]).num_disagree == 1
    assert relu_bounds.STUDY.outcome([changed(shallow, functional=shallow["functional"] - 2)]).num_disagree == 1


def test_units_with_one_pattern_are_one_group_and_dead_ones_none() -> None:
    model = FullyConnected((2, 4, 1), activation="relu").build()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0], [2.0, 0.5], [0.0, 1.0], [-1.0, -1.0]]))
    inputs = torch.tensor([[1.0, -1.0], [2.0, -1.0], [-1.0, 3.0]], dtype=torch.float64)
    problem = Problem(model, "squared", inputs, torch.ones(3, 1, dtype=torch.float64))
    patterns = activation_patterns(problem)
    assert patterns.num_active_units == 3
    assert sorted(patterns.groups) == [(1, 1), (2, 2)]
    assert patterns.unit_input_ranks == (2, 2, 1, 0)


# Training and critical points


def images(count: int = 60) -> Data:
    return digits(count, side=4, standardise=True, one_hot=True)


@pytest.mark.parametrize("is_minimum", [True, False])
@pytest.mark.parametrize("hidden", [(3,), (7, 3), (3, 7), (6, 4, 5)])
def test_a_constructed_point_is_critical_and_a_minimum_only_with_the_leading_directions(
    hidden: tuple[int, ...], is_minimum: bool
) -> None:
    network, data = FullyConnected((16, *hidden, 10)), images()
    problem = Problem(bottleneck_critical_point(network, data, is_minimum, seed=1), "squared", *data)
    assert float(problem.gradient().norm()) < 1e-12
    assert float(problem.residuals().norm()) > 0.1
    from hessmap.hessians.operators import loss_hessian

    lowest = float(torch.linalg.eigvalsh(loss_hessian(problem).to_dense())[0])
    assert (lowest > -1e-10) is is_minimum


def test_ranks_at_bottleneck_points_agree_and_each_check_can_fail() -> None:
    rows = measured(training.STUDY, scenario="bottleneck", widths=(16, 5, 10))
    assert [row["point"] for row in rows] == ["minimum", "saddle", "trained"]
    assert training.STUDY.outcome(rows).holds
    row = rows[0]
    assert row.number("final.loss") == row.number("final.outer_product") == 5 * (16 + 10 - 5)
    assert row.number("final.functional") == 2 * 5 * row["data_ranks.residual_rank"]
    assert training.STUDY.outcome([changed(row, gradient_norm=1e-6)]).num_disagree == 1
    theorem = {**row["final_theorem"], "functional": 41}
    assert training.STUDY.outcome([changed(row, final_theorem=theorem)]).num_disagree == 1
    claims = list(training.claims([changed(rows[0], final_risk=1.0, fact_7=0), rows[2]]))
    assert [claim.holds for claim in claims] == [False, False]


def test_a_linear_teacher_is_learned_to_rounding_and_its_hessian_collapses(tmp_path: Path) -> None:
    before = use_models_folder(tmp_path)
    try:
        network = FullyConnected((4, 6, 5, 3))
        record = _record_along_training(network, linear_teacher(60, 4, 3), seed=0)
    finally:
        use_models_folder(before)
    case = {"data": "digits", "scenario": "teacher", "widths": network.widths, "num_samples": 60, "seed": 0}
    row = as_stored(case, record)
    verdict = training.STUDY.outcome([row])
    assert verdict.num_agree == 1
    assert [claim.holds for claim in verdict.claims] == [True] * 4
    assert row["gradient_norm"] < 1e-14
    assert row.array("ranks.loss")[0] == row.number("initial_theorem.loss")
    spoiled = changed(
        row,
        final_risk=1e-20,
        ranks={**row["ranks"], "functional": np.ones(3)},
        weight_ranks={**row["weight_ranks"], "layer_1": np.array([3.0])},
        initial=row["final"],
    )
    assert [claim.holds for claim in training.claims([spoiled])] == [False] * 4


def test_snapshots_are_chosen_evenly_over_the_logarithm_of_their_size() -> None:
    taken = [Snapshot(moment, 10.0**-moment, {}) for moment in range(31)]
    chosen = [snapshot.moment for snapshot in _evenly_spread(taken)]
    assert chosen == list(range(0, 31, 2))
