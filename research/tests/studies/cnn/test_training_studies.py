"""Reconstruction, training, generalisation and small LeNets on small cases: they agree, and their verdicts can fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from study_rows import as_stored, changed

from hessmap.records import PARTS
from hessmap_research.runner.model_cache import use_models_folder
from hessmap_research.studies import Row, Study, claim_id
from hessmap_research.studies.cnn import generalisation, lenet, reconstruction, training
from hessmap_research.studies.cnn.lenet import SmallLeNet, toeplitz_chain

STUDIES = (generalisation.STUDY, lenet.STUDY, reconstruction.STUDY, training.STUDY)


@pytest.fixture(autouse=True, scope="module")
def _models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = use_models_folder(tmp_path_factory.mktemp("models"))
    yield
    use_models_folder(before)


def measured(study: Study, **fields: Any) -> Row:
    (case,) = (
        case for case in study.cases_on("digits") if all(case.get(name) == value for name, value in fields.items())
    )
    return as_stored(case, study.measure(case))


def with_value(row: Row, name: str, part: str, value: float) -> Row:
    """The row with another rank of one part, under its record or as a plain number."""
    old = row[f"{name}.{part}"]
    new = {**old, "value": value} if isinstance(old, dict) else value
    return changed(row, **{name: {**row[name], part: new}})


def test_every_axis_has_at_least_eight_points() -> None:
    axes = {
        "cnn/generalisation": ("kernel", "filters"),
        "cnn/lenet": ("filters",),
        "cnn/reconstruction": ("filters",),
    }
    for study in STUDIES[:3]:
        for data in study.data:
            for axis in axes[study.name]:
                assert len({case[axis] for case in study.cases_on(data)}) >= 8
    assert len({case["side"] for case in lenet.STUDY.cases_on("mnist")}) == 8
    assert sum(case["scenario"] == "minimum" for case in training.STUDY.cases_on("cifar10")) == 8


# Reconstruction


@pytest.fixture(scope="module")
def reconstructed() -> dict[str, Row]:
    fields = {"filters": 3, "loss": "squared"}
    return {kind: measured(reconstruction.STUDY, inputs=kind, **fields) for kind in reconstruction.INPUTS}


def test_linear_ranks_are_within_our_bounds_and_relu_ranks_within_theirs(reconstructed: dict[str, Row]) -> None:
    verdict = reconstruction.STUDY.outcome(list(reconstructed.values()))
    assert verdict.num_agree == 2
    row = reconstructed["as they are"]
    for part in PARTS:
        assert row.number(f"rank.{part}") == row.number(f"certified.{part}")
        for name, other in (("bound", "linear_rank"), ("theorem", "rank")):
            spoiled = with_value(row, name, part, row.number(f"{other}.{part}") - 1)
            assert reconstruction.STUDY.outcome([spoiled]).num_disagree == 1


def test_errors_at_a_rank_are_on_the_curve_and_fall_from_rank_to_bound(reconstructed: dict[str, Row]) -> None:
    for row in reconstructed.values():
        for part in PARTS:
            kept, errors = row.array("kept"), row.array(f"error.{part}")
            assert (np.diff(errors) <= 1e-15).all()
            at_rank, at_bound = (row[f"error_at.{name}.{part}"] for name in ("linear_rank", "bound"))
            assert at_bound <= at_rank
            rank = row.number(f"linear_rank.{part}")
            assert errors[kept >= rank][0] * 0.999 <= at_rank <= errors[kept <= rank][-1] * 1.001


def test_claims_about_reconstruction_can_fail(reconstructed: dict[str, Row]) -> None:
    plain = reconstructed["as they are"]
    errors = {name: dict.fromkeys(PARTS, 0.5) for name in ("linear_rank", "printed", "bound")}
    ranks = dict.fromkeys(PARTS, 0)
    other = Row({**plain.case, "inputs": "standardised"}, {**plain.record, "error_at": errors, "rank": ranks})
    spoiled = changed(plain, error_at=errors, rank=ranks, certified={part: {"value": 0} for part in PARTS})
    claims = reconstruction.STUDY.outcome([spoiled, other]).claims
    assert len(claims) == 10
    assert not any(claim.holds for claim in claims)
    assert all(
        claim.holds for claim in reconstruction.STUDY.outcome([plain]).claims if claim.id.startswith("small-error")
    )


# Training


def test_few_filters_leave_a_functional_hessian_at_the_minimum() -> None:
    row = measured(training.STUDY, network="conv-1x16-1x8/8-10")
    assert training.STUDY.outcome([row]).holds
    assert [row.number(f"final.{part}") for part in PARTS] == [27, 14, 27]
    assert training.STUDY.outcome([changed(row, gradient_norm=1e-6)]).num_disagree == 1
    for part in PARTS:
        assert training.STUDY.outcome([with_value(row, "final", part, 13)]).num_disagree == 1
    (claim,) = training.claims([with_value(row, "final", "functional", 0)])
    assert not claim.holds


@pytest.mark.parametrize(
    ("scenario", "network"), [("teacher", "conv-1x5-3x2-3x2-2"), ("images", "conv-1x4-2x2-2x1-10")]
)
def test_the_functional_hessian_vanishes_along_training_with_and_without_a_loss(scenario: str, network: str) -> None:
    case = {"data": "digits", "scenario": scenario, "network": network, "seed": 0}
    row = as_stored(case, training.measure(case))
    verdict = training.STUDY.outcome([row])
    assert verdict.num_agree == 1
    assert [claim.holds for claim in verdict.claims] == [True] * 6
    assert (row["final_risk"] < 1e-20) == (scenario == "teacher")
    rising = {part: np.array([0.0, 1.0, 2.0]) for part in PARTS}
    spoiled = changed(
        row,
        final_risk=1e-20 if scenario == "teacher" else 0.0,
        ranks=rising,
        initial=row["final"],
        full_ranks=(100,) * len(row["full_ranks"]),
    )
    assert [claim.holds for claim in training.claims([spoiled])] == [False] * 6


# Generalisation


def test_the_rank_of_a_linear_network_is_the_predicted_one_and_its_error_that_of_a_trained_one() -> None:
    row = measured(generalisation.STUDY, activation="identity", kernel=12, filters=2)
    assert generalisation.STUDY.outcome([row]).num_agree == 1
    assert 0.1 < row["test_error"] < 0.6
    assert row["training_error"] < row["test_error"]
    wrong = changed(row, predicted={**row["predicted"], "value": row["rank"] - 1})
    assert generalisation.STUDY.outcome([wrong]).num_disagree == 1
    relu = measured(generalisation.STUDY, activation="relu", kernel=14, filters=1)
    assert "predicted" not in relu


def test_the_claim_about_test_errors_follows_the_rows() -> None:
    generator = np.random.default_rng(0)
    ranks, counts = np.arange(1, 41), generator.integers(1, 100, 40)

    def holding(first: Any, second: Any, scale: float = 0.001) -> list[bool | None]:
        noise = scale * np.arange(5)
        rows = [
            Row(
                {"data": "digits", "activation": "relu"},
                {"rank": a, "num_parameters": b}
                | {f"test_{name}": noise + 1 / rank for name in ("errors", "losses")}
                | {f"training_{name}": noise + 0.5 / rank for name in ("errors", "losses")},
            )
            for a, b, rank in zip(first.tolist(), second.tolist(), ranks.tolist(), strict=False)
        ]
        return [claim.holds for claim in generalisation.claims(rows)]

    assert holding(ranks, counts) == [True] * 4
    assert holding(counts, ranks) == [False] * 4
    assert holding(ranks, 2 * ranks) == [False] * 4  # one quantity twice: not higher
    assert holding(generator.integers(1, 100, 40), counts) == [None] * 4  # two that say nothing: not significant
    assert holding(ranks, counts, 1.0)[:2] == [None] * 2  # seeds that differ more than networks: no spread
    assert holding(ranks[:2], counts[:2]) == []


def test_test_samples_are_not_among_the_training_samples() -> None:
    training_samples, test_samples = generalisation.training_and_test("digits")
    assert (len(training_samples.targets), len(test_samples.targets)) == (400, 1397)
    assert abs(float(training_samples.inputs.mean())) < 1e-12 < abs(float(test_samples.inputs.mean()))


# Small LeNets


@pytest.mark.parametrize("side", [8, 11, 14])
def test_toeplitz_matrices_give_the_linear_network_and_pooling_can_be_done_first(side: int) -> None:
    network = SmallLeNet(side, 2, "average", "identity", hidden=5, outputs=3)
    inputs = torch.randn(7, side**2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        outputs = network.build(seed=1)(inputs)
    chain = toeplitz_chain(network.build(seed=1))
    strided = toeplitz_chain(network.build_after_blurring(seed=1))
    assert torch.allclose(chain.outputs(inputs), outputs, rtol=0, atol=1e-13)
    assert torch.allclose(strided.outputs(network.blurred(inputs)), outputs, rtol=0, atol=1e-13)
    assert chain.layer_parameters == strided.layer_parameters
    assert all(low <= high for low, high in zip(strided.sizes, chain.sizes, strict=True))
    assert not torch.allclose(chain.outputs(inputs), network.build(seed=2)(inputs).detach())


def test_ranks_of_small_lenets_are_within_their_bounds_and_each_check_can_fail() -> None:
    linear = measured(lenet.STUDY, activation="identity", filters=2)
    relu = measured(lenet.STUDY, activation="relu", pooling="max", filters=2)
    tanh = measured(lenet.STUDY, activation="tanh", filters=1)
    assert lenet.STUDY.outcome([linear, relu, tanh]).num_agree == 3
    assert "certified" not in tanh
    for part in PARTS:
        for row in (linear, relu):
            spoiled = with_value(row, "bound", part, row.number(f"rank.{part}") - 1)
            assert lenet.STUDY.outcome([linear, relu, spoiled]).num_disagree == 1
        assert lenet.STUDY.outcome([with_value(linear, "exact", part, 1)]).num_disagree == 1
    spoiled = changed(linear, toeplitz_error=1e-3, blurred_bound={part: {"value": 10**6} for part in PARTS})
    failing = [claim.id for claim in lenet.STUDY.outcome([spoiled]).failing]
    assert failing == ["toeplitz-outputs", *(claim_id("pooled-bound-lower", part) for part in PARTS)]
    low = changed(relu, rank=dict.fromkeys(PARTS, 0), certified={part: {"value": 0} for part in PARTS})
    assert not any(claim.holds for claim in lenet.claims([low]))
