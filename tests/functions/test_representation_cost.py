"""All bounds on a cost in one call: each against its own formula, and on the right side of the norm."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import hessmap as hm
from example_shares import share_of_examples
from hessmap.records import RepresentationCost
from hessmap.theory import functions


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@share_of_examples(0.5)
@given(
    seed=st.integers(0, 1000),
    widths=st.lists(st.integers(1, 6), min_size=2, max_size=5),
    activation=st.sampled_from(["relu", "identity", "tanh"]),
)
def test_lower_bounds_stay_below_the_norm_of_the_weights(seed, widths, activation):
    model = hm.FullyConnected(tuple(widths), bias=True, activation=activation).build(seed=seed)
    cost = hm.maps.functions.representation_cost(model, drawn(8, widths[0], seed=seed))
    assert cost.num_layers == len(widths) - 1
    assert cost.squared_norm == pytest.approx(sum(float(p.detach().square().sum()) for p in model.parameters()))
    for name in ("jacobians", "linear"):
        bound = cost.bound(name)
        if bound is not None:
            assert bound.kind == "lower_bound"
            assert bound.squared_norm <= cost.squared_norm * (1 + 1e-9)
    assert (cost.bound("linear") is None) == (activation != "identity" and len(widths) > 2)


def test_balanced_factors_leave_nothing_to_save():
    matrix = drawn(3, 4).numpy()
    layers = []
    for factor in functions.balanced_factors(matrix, 4):
        layer = nn.Linear(factor.shape[1], factor.shape[0], bias=False, dtype=torch.float64)
        layer.weight.data = torch.from_numpy(factor)
        layers.append(layer)
    cost = hm.maps.functions.representation_cost(nn.Sequential(*layers), drawn(6, 4))
    for name in ("jacobians", "linear"):
        assert cost.bound(name).squared_norm == pytest.approx(cost.squared_norm, rel=1e-10)


def test_a_rank_deficient_map_is_charged_for_its_rank_alone():
    matrix = drawn(5, 2, seed=1).numpy() @ drawn(2, 5, seed=2).numpy()  # rounding leaves three tiny singular values
    factors = functions.balanced_factors(matrix, 8)
    attained = sum(float(np.square(factor).sum()) for factor in factors)
    assert functions.linear_representation_cost(matrix, 8) == pytest.approx(attained, rel=1e-12)


def test_the_path_bound_is_that_of_the_outputs_of_the_network():
    model, inputs = hm.FullyConnected((2, 9, 3), activation="relu", bias=True).build(seed=3), drawn(7, 2)
    cost = hm.maps.functions.representation_cost(model, inputs)
    outputs = model(inputs).detach().numpy()
    wanted = functions.rank_one_lower_bound(inputs.numpy(), outputs).squared_norm(2)
    assert cost.bound("path").squared_norm == pytest.approx(wanted)
    assert "shortest path of them" in cost.bound("path").holds_for
    assert cost.bound("deeper").num_layers == 3
    assert cost.bound("deeper").kind == "upper_bound"
    deeper = cost.inner_rank * 3 + cost.constant
    assert cost.bound("deeper").squared_norm <= deeper * (1 + 1e-9)


def test_depths_of_recovery_are_given_where_a_network_is_cheap():
    narrow = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).double()
    for layer in (narrow[0], narrow[2]):
        nn.init.eye_(layer.weight)
        nn.init.zeros_(layer.bias)
    cost = hm.maps.functions.representation_cost(narrow, torch.rand(60, 2, generator=torch.Generator().manual_seed(0)))
    assert cost.inner_rank == 2
    first, last = cost.expected_depths
    assert first == max(cost.num_layers + 1, int(np.floor(cost.constant)) + 1)
    assert last > first


def rank_two(noise: float, seed: int = 0) -> nn.Module:
    """6 to 20 to 6 with first weights of rank 2 and a disturbance of their size."""
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 6)).double()
    weights = drawn(20, 2, seed=seed) @ drawn(2, 6, seed=seed + 1)
    model[0].weight.data = weights + noise * weights.abs().mean() * drawn(20, 6, seed=seed + 2)
    model[0].bias.data, model[2].bias.data = 0.1 * drawn(20, seed=seed + 3), 0.1 * drawn(6, seed=seed + 4)
    model[2].weight.data = torch.linalg.qr(drawn(20, 6, seed=seed + 5))[0].T.contiguous()
    return model


@pytest.mark.parametrize("noise", [0.0, 1e-13, 1e-7, 1e-5])
def test_the_rank_of_the_weights_does_not_hang_on_rounding(noise):
    model, inputs = rank_two(noise), drawn(100, 6)
    cost = hm.maps.functions.representation_cost(model, inputs)
    measured = cost.inner_rank_measurement
    assert (cost.inner_rank, measured.value, measured.decidable) == (2, 2, True)
    assert measured.threshold == pytest.approx(0.1 * measured.scale)
    assert measured.gap > 1e3
    assert cost.expected_depths is None or cost.expected_depths[0] > 2
    single = hm.maps.functions.representation_cost(model.float(), inputs.float())
    assert single.inner_rank == 2
    assert single.constant == pytest.approx(cost.constant, rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_dropped_moves_the_outputs_by_no_more_than_is_said(seed):
    model, inputs = rank_two(1e-5, seed), drawn(100, 6, seed=seed)
    cost = hm.maps.functions.representation_cost(model, inputs)
    left, values, right = torch.linalg.svd(model[0].weight.detach(), full_matrices=False)
    other = rank_two(0.0, seed)
    other.load_state_dict(model.state_dict())
    other[0].weight.data = (left[:, :2] * values[:2]) @ right[:2]
    low, high = inputs.min(0).values, inputs.max(0).values
    points = low + (high - low) * torch.rand(500, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    largest = float((model(points) - other(points)).norm(dim=1).max().detach())
    assert 0 < largest <= cost.function_error < 1e3 * largest


def test_weights_without_a_clear_cut_have_no_inner_rank():
    """Singular values that fall evenly, as trained weights have them: no rank is expected at any depth."""
    model = rank_two(0.0)
    left, _, right = torch.linalg.svd(model[0].weight.detach(), full_matrices=False)
    model[0].weight.data = (left * 0.4 ** torch.arange(6, dtype=torch.float64)) @ right
    cost = hm.maps.functions.representation_cost(model, drawn(100, 6))
    assert (cost.inner_rank, cost.constant, cost.expected_depths) == (None, None, None)
    assert not cost.inner_rank_measurement.decidable
    assert any("no clear cut at 0.1 of the largest" in note for note in cost.notes)
    assert RepresentationCost.from_json(cost.to_json()) == cost


def test_a_zero_weight_is_said_and_not_stumbled_over():
    model = rank_two(0.0)
    nn.init.zeros_(model[2].weight)
    assert any(
        "a weight matrix is zero" in note for note in hm.maps.functions.representation_cost(model, drawn(9, 6)).notes
    )


@share_of_examples(0.25)
@given(seed=st.integers(0, 1000), depth=st.integers(2, 6), scale=st.floats(0.05, 2.0))
def test_depths_are_claimed_only_above_the_networks_own(seed, depth, scale):
    """Narrow networks with small weights have a negative constant: k L + C is no cost at smaller depths."""
    model = hm.FullyConnected((3, *[8] * (depth - 1), 3), activation="relu").build(seed=seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    cost = hm.maps.functions.representation_cost(model, 50 * drawn(30, 3, seed=seed), relative_tolerance=1e-6)
    for depths in (cost.expected_depths, cost.proved_depths):
        assert depths is None or depth < depths[0] <= depths[1]


def test_what_has_no_bound_says_why():
    model = nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    cost = hm.maps.functions.representation_cost(model, drawn(5, 16))
    assert [bound.name for bound in cost.bounds] == ["weights"]
    assert "slopes of at most 1" in cost.notes[0]
    same = hm.maps.functions.representation_cost(
        nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)), torch.ones(3, 2)
    )
    assert any("path gives no bound" in note for note in same.notes)
    assert any("constructions need a ReLU" in note for note in same.notes)
    assert RepresentationCost.from_json(same.to_json()) == same
