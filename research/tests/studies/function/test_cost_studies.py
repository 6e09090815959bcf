"""Studies of costs, balance, kernel regression and cached networks: small cases agree, and verdicts can fail."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from study_rows import changed, measured

from hessmap.networks import FullyConnected, Polynomial, parse_network
from hessmap.records.record import decode, encode
from hessmap_research.studies import Row
from hessmap_research.studies.function import balance, krr, linear_cost, schatten, trained_zoo
from hessmap_research.studies.layers.trained_layers import ZooNetwork
from hessmap_research.studies.trained_networks import (
    architecture_of,
    described,
    family_of,
    stored_networks,
    trained_network,
)


def test_balanced_factors_attain_the_cost_and_the_verdict_can_fail() -> None:
    rows = measured(linear_cost.STUDY, "", num_layers=3)
    assert linear_cost.STUDY.outcome(rows).holds
    trained = [row for row in rows if row["item"] == "trained"]
    assert all(np.all(row.array("excess") > -1e-12) for row in trained)
    assert not linear_cost.STUDY.outcome([changed(rows[0], least_other_excess=-1e-6), *rows[1:]]).holds
    assert not linear_cost.STUDY.outcome([*rows[:-1], changed(rows[-1], last_ratio=1.01)]).holds


def test_other_factors_of_a_map_give_the_same_map() -> None:
    generator = np.random.default_rng(0)
    factors = [generator.normal(size=size) for size in ((3, 4), (3, 3), (2, 3))]
    others = linear_cost._other_factors(factors, generator)
    assert np.allclose(linear_cost._product(others), factors[2] @ factors[1] @ factors[0], atol=1e-12)
    assert not np.allclose(others[0], factors[0])


def test_the_gradient_of_a_linear_network_is_that_of_autograd() -> None:
    generator = np.random.default_rng(1)
    weights = [generator.normal(size=size) for size in ((3, 4), (3, 3), (2, 3))]
    target = generator.normal(size=(2, 4))
    leaves = [torch.from_numpy(weight).requires_grad_() for weight in weights]
    product = leaves[2] @ leaves[1] @ leaves[0]
    loss = (product - torch.from_numpy(target)).square().sum() / 2
    penalty = linear_cost._RIDGE * torch.stack([leaf.square().sum() for leaf in leaves]).sum()
    wanted = torch.autograd.grad(loss + penalty, leaves)
    for found, other in zip(linear_cost._gradients(weights, target), wanted, strict=True):
        assert np.allclose(found, other.numpy(), atol=1e-12)


def test_kernel_regression_has_the_corrected_rank_and_not_the_printed_one() -> None:
    rows = measured(krr.STUDY, "", seed=0)
    assert krr.STUDY.outcome(rows).holds
    assert {(row["measured"], row["printed"]) for row in rows if row["input_dim"] == 3} == {(3, 4)}
    as_printed = [changed(row, measured=row["printed"]) for row in rows]
    assert not krr.STUDY.outcome(as_printed).holds


@pytest.mark.parametrize("slope", [1.0, -0.5])
def test_defects_decay_as_the_law_says(slope: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "_LAST_TIME", 0.125)
    rows = measured(balance.STUDY, "", slope=slope, seed=0)
    assert rows[0]["law_error"] < (1e-8 if slope == 1.0 else 1e-4)
    assert balance.STUDY.outcome(rows).holds
    assert not balance.STUDY.outcome([changed(rows[0], law_error=1e-3)]).holds


def test_descent_ends_balanced_and_a_larger_imbalance_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(balance._DESCENT, "num_steps", 400)
    monkeypatch.setitem(balance._DESCENT, "ridge", 0.3)
    row = Row({"item": "descent", "num_layers": 3, "seed": 0}, {})
    found = Row(row.case, decode(encode(balance.measure(row.case))))
    assert 0 <= found["unit_imbalance"] <= found["layer_imbalance"] < 0.2
    near = changed(found, layer_imbalance=1e-3, unit_imbalance=1e-4)
    assert [claim.holds for claim in balance.claims([near])] == [True, True]
    far = changed(found, layer_imbalance=2e-3, unit_imbalance=2e-3)
    assert [claim.holds for claim in balance.claims([far])] == [False, False]


def test_norms_stay_above_their_bounds_and_a_violation_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schatten, "_NUM_NETWORKS", 10)
    rows = [
        *measured(schatten.STUDY, "", item="random", num_layers=4),
        *measured(schatten.STUDY, "", item="path", num_layers=6),
        *measured(schatten.STUDY, "", item="growth", true_rank=2),
    ]
    assert schatten.STUDY.outcome(rows).holds
    for place, name, value in ((0, "least_ratio", 0.99), (1, "least_slope_ratio", 0.99), (2, "exponent", 0.6)):
        wrong = [changed(row, **{name: value}) if number == place else row for number, row in enumerate(rows)]
        assert not schatten.STUDY.outcome(wrong).holds


def test_stored_networks_are_built_again_with_their_samples() -> None:
    from hessmap.datasets import digits

    network = FullyConnected((64, 5, 10), bias=True, activation="tanh")
    data = digits(num_samples=60)
    model, _ = trained_network(network, data, epochs=1, learning_rate=0.01)
    (found,) = stored_networks("fully connected")
    assert found is not None
    assert torch.equal(found.inputs, data.inputs)
    assert torch.equal(found.model(data.inputs), model(data.inputs))
    assert list(stored_networks("zoo")) == []


@pytest.mark.parametrize(
    ("network", "family"),
    [
        (FullyConnected((4, 3, 2), bias=True, activation="tanh"), "fully connected"),
        (FullyConnected((4, 3, 2), activation=Polynomial((0.0, 1.0, 0.5))), "fully connected"),
        (parse_network("conv-1x20-8x3-16x3-10 relu"), "convolutional"),
        (parse_network("local-5x4-3-10 shared"), "convolutional"),
        (ZooNetwork("LeNet5", (1, 28, 28)), "zoo"),
        (ZooNetwork("LeNet5", (3, 32, 32), num_classes=100), "zoo"),
    ],
    ids=str,
)
def test_a_network_is_found_again_by_its_own_description(network: Any, family: str) -> None:
    description = json.loads(json.dumps(described(network)))
    assert architecture_of(description) == network
    assert family_of(network, {}) == family
    assert family_of(network, {"ridge": 0.1}) == "penalised"


def test_the_zoo_measures_what_is_cached_and_tells_contradictions(monkeypatch: pytest.MonkeyPatch) -> None:
    def small() -> None:
        from hessmap.datasets import digits

        data = digits(num_samples=60)
        for widths in ((64, 6, 10), (64, 4, 10)):
            trained_network(FullyConnected(widths, bias=True, activation="relu"), data, epochs=1, learning_rate=0.01)

    monkeypatch.setattr(trained_zoo, "_train_dense", small)
    (row,) = measured(trained_zoo.STUDY, "", family="fully connected")
    assert row["num_cached"] == row["num_measured"] == 2
    assert sorted(row.array("upper_bound")) == [4, 6]
    assert trained_zoo.STUDY.outcome([row]).holds
    assert not trained_zoo.STUDY.outcome([changed(row, num_contradictions=1)]).holds
    for share, num_measured, outcome in ((0.1, 3, True), (1.0, 3, False), (0.1, 2, None)):
        rows = [changed(row, median_share=0.8, num_measured=3)]
        rows.append(Row({"family": "penalised"}, {**row.record, "median_share": share, "num_measured": num_measured}))
        assert trained_zoo.STUDY.outcome(rows).claims[-1].holds is outcome
