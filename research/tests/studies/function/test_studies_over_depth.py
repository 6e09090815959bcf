"""The studies of cost and rank over depth: small cases of each, their starts, and that their verdicts can fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hessmap.records.record import decode, encode
from hessmap.theory.functions import cross_map, deepened_network
from hessmap_research.runner.registry import find
from hessmap_research.studies import Row
from hessmap_research.studies.function import cost_over_depth, published_setting, quasi_newton
from hessmap_research.studies.function import regularised_network as module
from hessmap_research.studies.function.built_start import embedded_network
from hessmap_research.studies.function.published_setting import latent_data


@pytest.fixture
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings of 30 steps, 3 of L-BFGS: what a record holds does not depend on how good a network is."""
    plain = module.regularised_network

    def short(*given: Any, **options: Any) -> Any:
        return plain(*given, **{**options, "num_steps": 30})

    monkeypatch.setattr(module, "regularised_network", short)
    monkeypatch.setattr(quasi_newton, "_CHECK", 3)
    monkeypatch.setattr(quasi_newton, "_REFRESH", 2)
    monkeypatch.setattr(published_setting, "_MOST_STEPS", 3)


def outcomes(name: str, *rows: Row) -> list[str]:
    return [claim.outcome for claim in find(name).outcome(rows).claims]


def test_a_built_network_in_wider_layers_is_the_same_function_at_the_same_norm() -> None:
    """Remark 2 of Jacot 2023: units of zero weights cost nothing."""
    given = [([[1.0, -2.0], [0.5, 1.0], [-1.0, 0.0]], [0.1, -0.2, 0.3]), ([[1.0, 2.0, -1.0]], None)]
    made = deepened_network(given, 5, [-1.0, -1.0], [1.0, 1.0])
    points = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (20, 2)))
    values = points.numpy()
    for place, layer in enumerate(made.layers):
        values = values @ layer.weight.T + layer.bias
        values = np.maximum(values, 0) if place < 4 else values
    for width in (3, 9):
        model = embedded_network(made.layers, width, seed=0, noise=0.0)
        np.testing.assert_allclose(model(points).detach().numpy(), values, atol=1e-12)
        norm = sum(float(part.detach().square().sum()) for part in model.parameters())
        assert norm == pytest.approx(made.squared_norm)
    noisy = embedded_network(made.layers, 9, seed=0)
    assert 0 < float((noisy(points).detach() - torch.from_numpy(values)).abs().max()) < 1


@pytest.mark.parametrize("name", list(cost_over_depth.FUNCTIONS))
def test_the_functions_of_the_plane_have_the_ranks_that_are_said_of_them(name: str) -> None:
    points = np.random.default_rng(1).uniform(-1, 1, (200, 2))
    layers = cost_over_depth._network(name)
    values = cost_over_depth._values(layers, points)
    if name == "cross":
        np.testing.assert_allclose(values, cross_map(points), atol=1e-12)
    ranks = []
    for point in points:
        steps = [cost_over_depth._values(layers, point[None] + 1e-7 * e) for e in np.eye(2)]
        jacobian = np.vstack([(step - cost_over_depth._values(layers, point[None])) / 1e-7 for step in steps])
        ranks.append(np.linalg.matrix_rank(jacobian, tol=1e-3))
    assert max(ranks) == cost_over_depth.FUNCTIONS[name].jacobian_rank


def test_the_data_of_the_published_setting_depend_on_few_latent_coordinates() -> None:
    one, other = latent_data(4, 1.0, seed=0), latent_data(4, 0.3, seed=0)
    assert one.inputs.shape == one.targets.shape == (500, 50)
    assert torch.allclose(one.inputs * 0.3, other.inputs)
    assert torch.equal(one.targets, other.targets)
    assert float(one.inputs.std()) == pytest.approx(1)


def published_row(
    first_penalty: float, objective: float, rank: int, gradient: float = 0.3, mean_over: str = "samples"
) -> Row:
    """``gradient`` is the share that is left of the penalty's gradient, 2 ridge ||W||."""
    case = {"mean_over": mean_over, "scale": 1.0, "first_penalty": first_penalty, "seed": 0}
    split = {"rank": rank, "start": 3, "end": 10, "inside_per_layer": 1.05 * rank}
    middle = {"rank": rank, "nonlinearity": 0.01}
    ridge = 0.05 / 13 * (50 if mean_over == "samples and outputs" else 1)
    norm = {"least_gradient_norm": gradient * 2 * ridge * (13 * 9.0) ** 0.5}
    return Row(case, {"middle": middle, "split": split, "cost_per_layer": 9.0, "objective": objective, **norm})


def test_claims_on_minima_are_judged_by_the_training_that_ends_lowest() -> None:
    rows = [published_row(1.0, 3.0, rank=30), published_row(100.0, 1.0, rank=4)]
    found = {claim.id: claim.outcome for claim in find("function/published-setting").outcome(rows).claims}
    assert found == {
        "middle-rank-samples-1-0": "holds",
        "relu-change-samples-1-0": "holds",
        "cost-samples-1-0": "inconclusive",  # the lowest end is no minimum
        "layer-costs-rank-samples-1-0": "holds",
        "stronger-penalty-lower-samples-1-0": "holds",
    }
    turned = [published_row(1.0, 1.0, rank=4), published_row(100.0, 3.0, rank=1)]
    last = find("function/published-setting").outcome(turned).claims[-1]
    assert last.outcome == "does not hold"


@pytest.mark.parametrize("mean_over", ["samples", "samples and outputs"])
def test_a_minimum_can_refute_what_another_training_leaves_open(mean_over: str) -> None:
    """At any scale of the objective alike."""
    name = "function/published-setting"
    further = published_row(1.0, 1.0, 5, gradient=0.11, mean_over=mean_over)
    assert outcomes(name, further)[:3] == ["inconclusive", "holds", "inconclusive"]
    minimum = published_row(1.0, 1.0, 5, gradient=0.09, mean_over=mean_over)
    assert outcomes(name, minimum)[:3] == ["does not hold", "holds", "does not hold"]


def test_a_split_that_no_minimum_refutes_says_so() -> None:
    dear = published_row(1.0, 1.0, 5)
    row = Row(dear.case, {**dear.record, "split": {**dear["split"], "inside_per_layer": 10.0}})
    claim = find("function/published-setting").outcome([row]).claims[3]
    assert claim.outcome == "inconclusive"
    assert claim.detail.endswith("training did not reach a minimum: a gradient of 0.3 of the penalty's is left")


@pytest.mark.usefixtures("_few_steps")
@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("function/cost-over-depth", {"function": "cross", "num_layers": 4, "num_random": 1}),
        ("function/rank-one-layer", {"num_layers": 4, "seed": 0}),
        ("function/published-setting", {"mean_over": "samples", "scale": 1.0, "first_penalty": 100.0, "seed": 0}),
    ],
)
def test_a_case_of_each_gives_a_record_that_can_be_stored_and_judged(
    name: str, case: dict[str, Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HESSMAP_MODELS", str(tmp_path))
    row = Row(case, decode(encode(find(name).measure(case))))
    assert find(name).outcome([row]).claims


def cost_row(depth: int, cost: float) -> Row:
    case = {"function": "cross", "num_layers": depth, "num_random": 1}
    return Row(case, {"cost": cost, "lower": 1.0 * depth, "built": 3.0 * depth + 20, "risk": 1e-5})


def test_a_cheaper_cross_map_would_speak_against_the_conjecture() -> None:
    dear = [cost_row(depth, 2 * depth + 5) for depth in (8, 16, 24)]
    cheap = [cost_row(depth, 1.2 * depth + 15) for depth in (8, 16, 24)]
    assert outcomes("function/cost-over-depth", *dear) == ["holds", "holds"]
    assert outcomes("function/cost-over-depth", *cheap) == ["holds", "does not hold"]


def test_a_layer_that_is_not_of_rank_one_is_seen() -> None:
    def rows(shallow: float, deep: float, random: float) -> list[Row]:
        return [
            Row(
                {"num_layers": depth, "seed": 0},
                {
                    "least": {"samples": value, "others": value},
                    "scaled": {"samples": value * depth**0.25, "others": value * depth**0.25},
                    "objective": {"built": 0.5, "random": random},
                    "cost_per_layer": 1.5,
                    "bound": 2.0,
                },
            )
            for depth, value in ((4, shallow), (16, deep))
        ]

    name = "function/rank-one-layer"
    assert outcomes(name, *rows(0.3, 1e-6, 0.6)) == ["holds"] * 6
    assert outcomes(name, *rows(0.3, 0.2, 0.4)) == ["holds", "does not hold"] * 2 + ["holds", "does not hold"]
    assert outcomes(name, *rows(0.9, 1e-6, 0.6))[0] == "does not hold"


def test_tripoints_of_many_seeds_are_decided_by_a_sign_test() -> None:
    def rows(deep: int) -> list[Row]:
        made = []
        for seed in range(20):
            for depth, count in ((2, 1), (9, deep if seed < 14 else 1)):
                case = {"shape": "hook 1.5/0.5", "ridge": 1e-4, "seed": seed, "num_layers": depth}
                made.append(Row(case, {"near": {"num_tripoints": count}, "slope_ratio": 0.1}))
        return made

    assert outcomes("function/tripoints", *rows(0))[1] == "holds"
    assert outcomes("function/tripoints", *rows(1))[1] == "inconclusive"
