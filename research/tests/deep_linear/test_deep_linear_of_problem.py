"""From a Problem to the closed form, and what has none."""

from __future__ import annotations

import pytest
import torch
from linear_networks import relative_error
from torch import nn

from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap.hessians.operators import functional_hessian, loss_hessian, outer_product_hessian
from hessmap.networks import Convolutional, FullyConnected
from hessmap.problem.problem import Problem
from hessmap.records import PARTS
from hessmap_research.deep_linear import (
    DeepLinearConvolutionHessian,
    DeepLinearHessian,
    deep_linear_convolution_of,
    deep_linear_of,
)


def data(num_samples: int = 30, input_dim: int = 5, output_dim: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_samples, input_dim, generator=generator, dtype=torch.float64)
    return inputs, torch.randn(num_samples, output_dim, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
def test_closed_form_equals_the_hessian_of_the_risk(bias: bool) -> None:
    inputs, targets = data()
    weights = torch.arange(1.0, 31.0, dtype=torch.float64)
    problem = Problem(FullyConnected((5, 4, 3), bias=bias).build(seed=1), "squared", inputs, targets, weights=weights)

    def risk(flat: torch.Tensor) -> torch.Tensor:
        return problem.weights @ problem.loss.value(problem.forward(problem.unflatten(flat), inputs), targets)

    found = DeepLinearHessian(deep_linear_of(problem))
    assert found.layout == problem.layout
    assert relative_error(found.to_dense(), torch.func.hessian(risk)(problem.parameters)) < 1e-12


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("widths", [(5, 3), (5, 7, 3), (5, 4, 2, 6, 3)])
def test_closed_form_equals_the_three_hessians_of_the_problem(widths: tuple[int, ...], bias: bool) -> None:
    """Two ways that share no formula: small factors here, differentiated layer outputs there."""
    problem = Problem(FullyConnected(widths, bias=bias).build(seed=1), "squared", *data())
    network = deep_linear_of(problem)
    for part, hessian in zip(PARTS, (outer_product_hessian, functional_hessian, loss_hessian), strict=True):
        found, known = DeepLinearHessian(network, part), hessian(problem)
        assert (found.to_dense() - known.to_dense()).abs().max() <= 1e-12 * known.scale
        assert found.scale == pytest.approx(known.scale, rel=2e-3)


def test_labels_become_one_hot_and_images_are_flattened() -> None:
    inputs, _ = data(input_dim=6)
    labels = torch.arange(30) % 3
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Linear(4, 3)).double()
    images = Problem(model, "squared", inputs.reshape(30, 2, 3), labels)
    one_hot = nn.functional.one_hot(labels, 3).double()
    flat = Problem(model, "squared", inputs.reshape(30, 2, 3), one_hot)
    first, second = deep_linear_of(images), deep_linear_of(flat)
    assert torch.equal(first.residual_input_moment, second.residual_input_moment)
    assert first.widths == (6, 4, 3)


def test_what_has_no_closed_form_is_refused() -> None:
    inputs, targets = data()
    linear = FullyConnected((5, 4, 3)).build(seed=0)
    relu = FullyConnected((5, 4, 3), activation="relu").build(seed=0)
    with pytest.raises(UnsupportedNetwork, match="hold for linear networks; this one has activation 'relu'"):
        deep_linear_of(Problem(relu, "squared", inputs, targets))
    with pytest.raises(InvalidInput, match="hold for the squared loss; the loss is 'log_cosh'"):
        deep_linear_of(Problem(linear, "log_cosh", inputs, targets))
    with pytest.raises(InvalidInput, match=r"leave out the penalty; l2 is 0\.1"):
        deep_linear_of(Problem(linear, "squared", inputs, targets, l2=0.1))
    linear[0].weight.requires_grad_(False)
    with pytest.raises(InvalidInput, match="need every parameter free; 20 of them are frozen"):
        deep_linear_of(Problem(linear, "squared", inputs, targets))


def test_a_closed_form_takes_streams_and_says_what_it_does_not_take() -> None:
    inputs, targets = data()
    model = FullyConnected((5, 4, 3)).build(seed=1)
    held = deep_linear_of(Problem(model, "squared", inputs, targets))
    streamed = deep_linear_of(Problem(model, "squared", [(inputs[:11], targets[:11]), (inputs[11:], targets[11:])]))
    assert relative_error(streamed.residual_input_moment, held.residual_input_moment) < 1e-12
    with pytest.raises(InvalidInput, match="closed forms are in float64; the problem is in torch.float32"):
        deep_linear_of(Problem(model, "squared", inputs, targets, dtype=torch.float32))
    for closed_form in (deep_linear_of, deep_linear_convolution_of):
        with pytest.raises(UnsupportedNetwork, match="is called by a user-defined forward function"):
            closed_form(Problem(model, "squared", inputs, targets, forward=lambda network, given: 2 * network(given)))


def test_a_convolutional_network_is_sent_to_its_own_closed_form() -> None:
    inputs, targets = data(input_dim=6)
    problem = Problem(Convolutional(6, (1, 2), (3,), outputs=3).build(), "squared", inputs, targets)
    with pytest.raises(UnsupportedNetwork, match="the model is conv-1x6-2x3-3. Use deep_linear_convolution_of"):
        deep_linear_of(problem)


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
def test_a_bare_layer_has_a_closed_form(bias: bool) -> None:
    inputs, targets = data()
    problem = Problem(nn.Linear(5, 3, bias=bias).double(), "squared", inputs, targets)
    found = DeepLinearConvolutionHessian(deep_linear_convolution_of(problem)).to_dense()
    assert relative_error(found, loss_hessian(problem).to_dense()) < 1e-12
