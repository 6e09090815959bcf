"""The activation table is the only place that lists activations: one more row and the whole library can use it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.errors import UnsupportedNetwork
from hessmap.functions import NetworkFunction, affine_layers, input_jacobians
from hessmap.hessians.mlp import as_mlp
from hessmap.maps.functions.bottleneck import balance
from hessmap.networks import ACTIVATIONS, ActivationKind, FullyConnected, activation_kind, describe, parse_network
from hessmap.networks.activations import OTHER_ELEMENTWISE
from hessmap.theory import predict_ranks
from hessmap.theory.polynomial import independent_rank


@pytest.fixture(params=["softsign", "steep"])
def added(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A smooth activation that architectures cannot name today, or a piecewise linear one of another slope."""
    rows = {
        "softsign": ActivationKind("Softsign", largest_slope=lambda module: 1.0),
        "steep": ActivationKind(
            "LeakyReLU",
            options={"negative_slope": 0.5},
            negative_slope=lambda module: float(module.negative_slope),
            largest_slope=lambda module: 1.0,
        ),
    }
    monkeypatch.setitem(ACTIVATIONS, request.param, rows[request.param])
    return str(request.param)


def _value(name: str, inputs: torch.Tensor) -> torch.Tensor:
    """The two functions by hand."""
    return inputs / (1 + inputs.abs()) if name == "softsign" else torch.where(inputs > 0, inputs, inputs / 2)


def test_one_row_is_enough(added: str) -> None:
    network = parse_network(f"4-3-2 {added}")
    assert network == FullyConnected((4, 3, 2), activation=added)
    model = network.build(seed=0)
    assert describe(model) == network

    inputs, targets = torch.randn(9, 4, dtype=torch.float64), torch.randn(9, 2, dtype=torch.float64)
    first, last = model[0].weight.detach(), model[2].weight.detach()
    expected = _value(added, inputs @ first.T) @ last.T
    assert torch.allclose(model(inputs), expected, rtol=0, atol=1e-14)

    problem = hm.Problem(model, "squared", (inputs, targets))
    assert as_mlp(problem) is not None
    hessian = hm.loss_hessian(problem)
    by_hand = _hessian_by_hand(added, first, last, inputs, targets)
    assert torch.allclose(hessian.to_dense(), by_hand, rtol=0, atol=1e-11 * by_hand.abs().max())

    function = NetworkFunction(model, inputs)
    jacobians = input_jacobians(function)
    one = torch.func.jacrev(lambda x: _value(added, x @ first.T) @ last.T)(inputs[3])
    assert torch.allclose(jacobians[3], one, rtol=0, atol=1e-13)
    assert affine_layers(model) is not None


def _hessian_by_hand(
    name: str, first: torch.Tensor, last: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Of the mean of half the squared residuals, in one vector of all weights."""
    sizes = (first.numel(), last.numel())

    def loss(weights: torch.Tensor) -> torch.Tensor:
        one, two = weights.split(sizes)
        outputs = _value(name, inputs @ one.reshape(first.shape).T) @ two.reshape(last.shape).T
        return 0.5 * (outputs - targets).square().sum(dim=1).mean()

    return torch.func.hessian(loss)(torch.cat([first.flatten(), last.flatten()]))


def test_the_facts_of_a_row_decide_what_is_exact_and_what_is_proved(added: str) -> None:
    network = FullyConnected((4, 3, 2), activation=added)
    model = network.build(seed=0)
    inputs, targets = torch.randn(9, 4, dtype=torch.float64), torch.randn(9, 2, dtype=torch.float64)
    problem = hm.Problem(model, "squared", (inputs, targets))
    bounds = predict_ranks(network, num_samples=100)
    if added == "steep":
        certified = hm.certified_rank(problem, "outer_product")
        assert certified.value == hm.numerical_rank(hm.outer_product_hessian(problem)).value
        assert np.isfinite(balance(model).relative)
        relu = predict_ranks(FullyConnected((4, 3, 2), activation="relu"), num_samples=100)
        assert bounds.outer_product == relu.outer_product
    else:
        with pytest.raises(UnsupportedNetwork, match="Softsign"):
            hm.certified_rank(problem, "outer_product")
        with pytest.raises(UnsupportedNetwork, match="homogeneous"):
            balance(model)
    with pytest.raises(UnsupportedNetwork, match=f"the activation is '{added}'"):
        independent_rank(3, 4, added)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_stated_slopes_are_those_of_the_module(name: str) -> None:
    """Largest slope and homogeneity of every row, measured on a grid."""
    from hessmap.networks import activation_module

    kind, module = ACTIVATIONS[name], activation_module(name)
    points = torch.linspace(-6, 6, 2401, dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(module(points).sum(), points)
    if kind.largest_slope is not None:
        assert float(slopes.abs().max()) == pytest.approx(kind.largest_slope(module), abs=1e-4)
    is_homogeneous = torch.allclose(module(3 * points), 3 * module(points), rtol=1e-12)
    assert is_homogeneous == kind.is_homogeneous
    if kind.negative_slope is not None:
        assert float(module(torch.tensor(-1.0, dtype=torch.float64))) == pytest.approx(-kind.negative_slope(module))


def test_every_module_of_the_table_acts_on_entries_alone() -> None:
    values = torch.randn(5, 6, dtype=torch.float64)
    for kind in (*ACTIVATIONS.values(), *OTHER_ELEMENTWISE):
        module = getattr(nn, kind.module)() if hasattr(nn, kind.module) else hm.networks.Erf()
        assert activation_kind(module) is kind
        single = torch.stack([module(value) for value in values.flatten()])
        assert torch.allclose(module(values).flatten(), single, rtol=1e-14)
