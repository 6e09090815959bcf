"""Bounds on ranks under cross-entropy and log-cosh: against float64 with a clear gap, formulas, and cases by hand."""

from __future__ import annotations

import pytest
import torch

import hessmap as hm
from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap.exact import certified_rank, certified_rank_bounds
from hessmap.hessians.operators import functional_hessian, loss_hessian, outer_product_hessian
from hessmap.records import Record

HESSIANS = {"loss": loss_hessian, "outer_product": outer_product_hessian, "functional": functional_hessian}
NETWORKS = [
    hm.FullyConnected((3, 2, 3)),
    hm.FullyConnected((4, 3, 2, 3), bias=True),
    hm.FullyConnected((3, 4, 3), activation="relu"),
    hm.FullyConnected((3, 3, 2), activation="leaky_relu", bias=True),
]


def problem_of(network, loss, seed=0, num_samples=12):
    inputs, targets = hm.datasets.dyadic(num_samples, network.input_dim, output_dim=network.output_dim, seed=seed)
    labels = torch.arange(num_samples) % network.output_dim
    return hm.Problem(network.build(seed=seed), loss, inputs, labels if loss == "cross_entropy" else targets)


@pytest.mark.parametrize("loss", ["cross_entropy", "log_cosh"])
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_both_bounds_are_the_rank_that_float64_sees_with_a_clear_gap(network, loss):
    problem = problem_of(network, loss)
    for part, hessian in HESSIANS.items():
        bounds, measured = certified_rank_bounds(problem, part), hm.numerical_rank(hessian(problem))
        assert measured.decidable, part
        assert bounds.lower == bounds.upper == measured.value, part
        assert bounds.is_exact
        assert bounds.failure_bound < 1e-10


@pytest.mark.parametrize("loss", ["cross_entropy", "log_cosh"])
@pytest.mark.parametrize("widths", [(4, 3, 5), (5, 2, 4, 3), (3, 4, 4, 4)])
def test_linear_networks_have_the_predicted_ranks(widths, loss):
    network = hm.FullyConnected(widths)
    problem = problem_of(network, loss, seed=1, num_samples=30)
    prediction = hm.predict_ranks(network, loss=loss)
    for part in HESSIANS:
        bounds = certified_rank_bounds(problem, part)
        assert bounds.lower == bounds.upper == getattr(prediction, part).value, part


def test_saturated_probabilities_that_float64_loses_still_count():
    network = hm.FullyConnected((3, 3, 3))
    model = network.build(seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 64.0  # logits of some thousands: the smallest probabilities are below 10^-300
    inputs, _ = hm.datasets.dyadic(12, 3)
    problem = hm.Problem(model, "cross_entropy", inputs, torch.arange(12) % 3)
    predicted = hm.predict_ranks(network, loss="cross_entropy").outer_product.value
    bounds = certified_rank_bounds(problem, "outer_product")
    assert bounds.lower == bounds.upper == predicted
    assert hm.numerical_rank(outer_product_hessian(problem)).value < predicted


def test_the_lower_bound_sees_residuals_that_cancel_and_the_upper_one_does_not():
    model = hm.FullyConnected((2, 2, 2)).build(seed=0)
    with torch.no_grad():
        model[2].weight.zero_()
    inputs, _ = hm.datasets.dyadic(6, 2)
    both = inputs.repeat(2, 1), torch.arange(2).repeat_interleave(6)  # every input with either label, p = 1/2
    bounds = certified_rank_bounds(hm.Problem(model, "cross_entropy", *both), "functional")
    assert bounds.lower == 0
    assert bounds.upper > 0
    assert not bounds.is_exact


def test_of_fitted_samples_log_cosh_has_no_functional_hessian_and_all_of_the_other():
    model = hm.FullyConnected((2, 2, 2)).build(seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((parameter * 8).round() / 8)  # few bits, so that the outputs are exact
    inputs, _ = hm.datasets.dyadic(6, 2)
    problem = hm.Problem(model, "log_cosh", inputs, model(inputs).detach())
    assert certified_rank_bounds(problem, "functional").lower == 0
    assert certified_rank_bounds(problem, "loss").lower == certified_rank_bounds(problem, "outer_product").lower == 4


def test_weights_of_samples_and_a_penalty_are_taken_along():
    network = NETWORKS[0]
    inputs, _ = hm.datasets.dyadic(12, 3)
    labels = torch.arange(12) % 3
    weights = torch.tensor([1.0] * 2 + [0.0] * 10, dtype=torch.float64)
    few = hm.Problem(network.build(seed=0), "cross_entropy", inputs, labels, weights=weights)
    assert certified_rank_bounds(few, "outer_product").upper == 2 * 2, "two samples, two directions of softmax each"
    penalised = hm.Problem(network.build(seed=0), "cross_entropy", inputs, labels, l2=0.125)
    bounds = certified_rank_bounds(penalised)
    assert bounds.lower == bounds.upper == network.num_parameters


def test_average_pools_divide_by_numbers_that_are_no_powers_of_two():
    model = torch.nn.Sequential(
        torch.nn.Conv1d(1, 2, 2, bias=False),
        torch.nn.AvgPool1d(3),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 3, bias=False),
    ).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint(-8, 9, parameter.shape, generator=generator) / 8)
    inputs = torch.randint(-4, 5, (10, 1, 7), generator=generator).double()
    problem = hm.Problem(model, "cross_entropy", inputs, torch.arange(10) % 3)
    measured = hm.numerical_rank(loss_hessian(problem))
    bounds = certified_rank_bounds(problem)
    assert measured.decidable
    assert bounds.lower == bounds.upper == measured.value


def test_what_is_not_covered_is_refused_and_the_refusal_of_the_other_function_leads_here():
    squared = problem_of(NETWORKS[0], "squared")
    with pytest.raises(UnsupportedNetwork, match="the loss is 'squared'. Use certified_rank"):
        certified_rank_bounds(squared)
    smooth = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    inputs, _ = hm.datasets.dyadic(12, 3)
    problem = hm.Problem(NETWORKS[0].build(), smooth, inputs, torch.arange(12) % 3)
    with pytest.raises(UnsupportedNetwork, match="cross-entropy of labels and for log-cosh"):
        certified_rank_bounds(problem)
    with pytest.raises(UnsupportedNetwork, match="certified_rank_bounds for cross-entropy"):
        certified_rank(problem_of(NETWORKS[0], "cross_entropy"))
    with pytest.raises(InvalidInput, match="part must be one of"):
        certified_rank_bounds(problem_of(NETWORKS[0], "cross_entropy"), "hessian")


def test_the_record_is_kept():
    bounds = certified_rank_bounds(problem_of(NETWORKS[0], "cross_entropy"), seed=3)
    assert Record.from_json(bounds.to_json()) == bounds
    assert bounds == certified_rank_bounds(problem_of(NETWORKS[0], "cross_entropy"), seed=3)
