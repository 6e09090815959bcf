"""At a kink torch's derivative is none of the function: no rank may be taken there."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import hessmap as hm
from hessmap.functions import NetworkFunction
from hessmap.functions.network_function import is_on_kink


class Second(nn.Module):
    """(x_1, g(x_2)) for a function g of one variable."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack([inputs[:, 0], self.function(inputs[:, 1])], dim=1)


# Functions that are 0 everywhere, and a point at which torch's derivative of them is not.
ZEROS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "relu": (lambda t: F.relu(t) - F.relu(-t) - t, 0.0),
    "leaky relu": (lambda t: F.leaky_relu(t, 0.5) - F.leaky_relu(-t, 0.5) - 1.5 * t, 0.0),
    "abs": (lambda t: t.abs() + t - 2 * F.relu(t), 0.0),
    "hard tanh": (lambda t: F.hardtanh(t) - F.relu(t + 1) + F.relu(t - 1) + 1, 1.0),
    "relu6": (lambda t: F.relu6(t) - F.relu(t) + F.relu(t - 6), 6.0),
    "clamp": (lambda t: t.clamp(min=2.0) - 2 - F.relu(t - 2), 2.0),
    "maximum of two": (lambda t: torch.stack([t, -t]).max(dim=0).values - t.abs(), 0.0),
    "pool": (lambda t: F.max_pool1d(torch.stack([t, -t], dim=1), 2)[:, 0] - t.abs(), 0.0),
    "nested": (lambda t: F.relu(F.relu(t + 1) - 1) - F.relu(F.relu(1 - t) - 1) - t, 0.0),
}


@pytest.mark.parametrize("name", ZEROS)
def test_a_kink_adds_no_dimension_to_a_function_of_one(name):
    function, kink = ZEROS[name]
    model, others = Second(function), torch.linspace(-7.3, 7.9, 40, dtype=torch.float64).reshape(20, 2)
    on_it = torch.tensor([[1.0, kink], [-3.0, kink]], dtype=torch.float64)
    assert float(model(others)[:, 1].abs().max()) < 1e-12
    torch_says = torch.func.jacrev(lambda x: model(x[None])[0])(on_it[0])
    assert torch.linalg.matrix_rank(torch_says) == 2  # the fault is there to be met
    found = hm.function_rank(model, torch.cat([others, on_it]), relative_tolerance=1e-9)
    assert (found.value, found.num_kinks, found.distribution) == (1, 2, {1: 22})
    assert found.bottleneck.lower == 1


def test_all_samples_may_sit_on_kinks():
    model = Second(ZEROS["relu"][0])
    found = hm.function_rank(model, torch.tensor([[0.0, 0.0], [0.0, 0.0]]), relative_tolerance=1e-9)
    assert (found.value, found.num_kinks) == (1, 2)


def exact_zero(kind: str) -> nn.Module:
    """(x_1, 0) as a chain that exact arithmetic knows; torch's derivative has rank 2 at (1, 0)."""
    if kind == "pool":  # max(t, -t) - max(-t, t): the first of equals is chosen
        first, last = nn.Linear(2, 6), nn.Linear(3, 2, bias=False)
        first.weight.data = torch.tensor([[1, 0], [1, 0], [0, 1], [0, -1], [0, -1], [0, 1]]).double()
        first.bias.data = torch.tensor([0, -1, 0, 0, 0, 0]).double()
        last.weight.data = torch.tensor([[1, 0, 0], [0, 1, -1]]).double()
        return nn.Sequential(first, nn.Unflatten(1, (3, 2)), nn.MaxPool1d(2), nn.Flatten(), last)
    slope = {"relu": 0.0, "leaky relu": 0.25}[kind]
    first, last = nn.Linear(2, 6), nn.Linear(6, 2)
    first.weight.data = torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 1], [0, -1]]).double()
    first.bias.data = torch.tensor([0, 0, 2, -2, 0, 0]).double()
    last.weight.data = torch.tensor([[1, -1, 0, 0, 0, 0], [0, 0, 1, -1, -1, 1]]).double()
    last.bias.data = torch.tensor([0, -2 * (1 + slope)]).double()
    activation = nn.ReLU() if not slope else nn.LeakyReLU(slope)
    return nn.Sequential(first, activation, last)


@pytest.mark.parametrize("kind", ["relu", "leaky relu", "pool"])
def test_points_with_ties_certify_no_more_than_the_truth(kind):
    model = exact_zero(kind)
    torch_says = torch.func.jacrev(lambda x: model(x[None])[0])(torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert torch.linalg.matrix_rank(torch_says) == 2
    points = torch.tensor([[1.0, 0.0], [0.5, 0.25], [-2.0, 0.0]], dtype=torch.float64)
    certificate = hm.maps.functions.certified_function_rank(model, points)
    assert certificate.ranks.tolist() == [1, 1, 1]
    assert certificate.num_ties >= 2
    assert (certificate.num_moved, certificate.num_uncertified) == (2, 0)
    both = hm.function_rank(model, points, certify=True)
    assert (both.value, both.bottleneck.lower, both.num_kinks) == (1, 1, 2)
    cost = hm.maps.functions.representation_cost(model, points)
    if cost.bound("jacobians") is not None:
        assert cost.bound("jacobians").squared_norm == pytest.approx(2.0 * (1 if kind == "relu" else 1.25))


def integer_network(generator: np.random.Generator, widths: list[int], slope: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for entering, leaving in pairwise(widths):
        layer = nn.Linear(entering, leaving, dtype=torch.float64)
        layer.weight.data = torch.from_numpy(generator.integers(-1, 2, (leaving, entering)).astype(float))
        layer.bias.data = torch.from_numpy(generator.integers(-1, 2, leaving).astype(float))
        layers += [layer, nn.LeakyReLU(slope) if slope else nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@given(
    seed=st.integers(0, 10**6),
    widths=st.lists(st.integers(1, 4), min_size=3, max_size=5),
    slope=st.sampled_from([0.0, 0.5, -0.5]),
)
def test_networks_full_of_ties_certify_ranks_that_points_nearby_have(seed, widths, slope):
    """Integer weights at integer points: most of them sit on kinks. The oracle is the best of many points nearby."""
    generator = np.random.default_rng(seed)
    model = integer_network(generator, widths, slope)
    points = torch.from_numpy(generator.integers(-2, 3, (4, widths[0])).astype(float))
    certificate = hm.maps.functions.certified_function_rank(model, points, seed=seed)
    measured = hm.function_rank(model, points, relative_tolerance=1e-9, seed=seed)
    for place, point in enumerate(points):
        near = point + 1e-5 * torch.from_numpy(generator.normal(size=(60, widths[0])))
        jacobians = hm.maps.functions.input_jacobians(model, torch.cat([near, near]))
        best = int(torch.linalg.matrix_rank(jacobians).max())
        assert certificate.ranks[place] <= best
        assert measured.ranks[place] <= best


def test_a_unit_that_never_moves_is_no_kink():
    """A pruned unit, and one behind units that are off, sit at 0 at every point: the function is smooth there."""
    model = hm.FullyConnected((3, 5, 4, 3), activation="relu", bias=True).build(seed=1)
    with torch.no_grad():
        model[0].weight[1], model[0].bias[1] = 0.0, 0.0
        model[0].bias[2] = -100.0
        model[2].weight[0], model[2].bias[0] = 0.0, 0.0
        model[2].weight[0, 1:3] = 1.0
        model[0].bias[[0, 3, 4]] = 100.0
        model[2].bias[1:] = 1000.0
    points = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    certificate = hm.maps.functions.certified_function_rank(model, points)
    assert certificate.num_ties == 12
    assert (certificate.num_moved, certificate.num_uncertified) == (0, 0)
    found = hm.function_rank(model, points)
    assert found.num_kinks == 0
    assert (found.ranks == certificate.ranks).all()
    assert found.value == 3


def test_pools_over_a_constant_background_are_certified_beside_it():
    """Black margins make every window of a pool a tie; beside the image there is none."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Unflatten(1, (1, 6, 6)), nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3))
    ).double()
    with torch.no_grad():
        model[1].bias[:] = 0.5
    images = torch.zeros(4, 36, dtype=torch.float64)
    images[:, 14] = torch.tensor([1.0, -1.0, 0.5, 2.0], dtype=torch.float64)
    found = hm.function_rank(model, images, certify=True)
    assert (found.num_kinks, found.certificate.num_uncertified) == (4, 0)
    assert (found.ranks == found.certificate.ranks).all()
    alone = hm.maps.functions.certified_function_rank(model, images)
    assert (alone.num_moved, alone.num_uncertified) == (4, 0)
    assert alone.num_ties > 4


@pytest.mark.parametrize("power", [2, 3])
def test_a_critical_point_of_a_smooth_function_is_no_kink(power):
    model = Second(lambda t: t**power)
    points = torch.tensor([[1.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    assert not is_on_kink(NetworkFunction(model, points)).any()
    assert hm.function_rank(model, points).ranks.tolist() == [1, 1]


def test_outputs_that_do_not_depend_on_the_inputs_have_rank_zero():
    model = Second(lambda t: torch.zeros_like(t))
    model.forward = lambda inputs: torch.ones(len(inputs), 2, dtype=torch.float64)
    assert hm.function_rank(model, torch.eye(2)).value == 0
