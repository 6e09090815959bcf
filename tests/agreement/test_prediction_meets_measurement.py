"""Where theory and measurement meet: they share no code, so their agreement is evidence."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import hessmap as hm
from example_shares import share_of_examples
from hessmap.exact import certified_data_ranks
from hessmap.records import PARTS, RankPrediction

OPERATORS = {
    "loss": hm.loss_hessian,
    "outer_product": hm.outer_product_hessian,
    "functional": hm.functional_hessian,
}
LOSSES = ("squared", "cross_entropy", "log_cosh")


@st.composite
def questions(draw: st.DrawFn) -> tuple[hm.FullyConnected, dict[str, object]]:
    """A random architecture with a loss and data ranks that can occur together."""
    widths = tuple(draw(st.lists(st.integers(1, 7), min_size=2, max_size=5)))
    loss = draw(st.sampled_from(LOSSES))
    bias = draw(st.booleans() | st.lists(st.booleans(), min_size=len(widths) - 1, max_size=len(widths) - 1))
    net = hm.FullyConnected(widths, bias=bias)
    input_rank = draw(st.integers(1, widths[0]))
    known: dict[str, object] = {"loss": loss, "input_rank": input_rank}
    visible = input_rank
    if net.has_bias:
        centred = input_rank - draw(st.integers(0, 1))
        known |= {"centred_input_rank": centred, "mean_residual_is_zero": draw(st.booleans())}
        visible = centred + (not known["mean_residual_is_zero"])
    known["residual_rank"] = draw(st.integers(0, min(visible, widths[-1] - (loss == "cross_entropy"))))
    return net, known


def values(prediction: RankPrediction) -> dict[str, int]:
    return {part: getattr(prediction, part).value for part in PARTS}


@given(question=questions(), seed=st.integers(0, 2**32))
@share_of_examples(2)
def test_formulas_equal_the_exact_rank_of_generic_networks(question, seed):
    net, known = question
    found = {part: hm.generic_rank(net, part, seed=seed, **known).value for part in PARTS}
    assert values(hm.predict_ranks(net, **known)) == found


@given(
    widths=st.lists(st.integers(2, 7), min_size=2, max_size=4).map(tuple),
    bias=st.booleans(),
    rank=st.integers(1, 7),
    seed=st.integers(0, 1000),
)
def test_formulas_equal_the_certified_rank_of_a_given_linear_network(widths, bias, rank, seed):
    """The data ranks are certified too, in the same arithmetic, so that nothing is assumed of the data."""
    net = hm.FullyConnected(widths, bias=bias)
    data = hm.datasets.dyadic(num_samples=12, dim=widths[0], rank=min(rank, widths[0]), seed=seed)
    targets = torch.randint(-4, 5, (12, widths[-1]), generator=torch.Generator().manual_seed(seed)).double() / 4
    problem = hm.Problem(net.build(seed=seed), "squared", data.inputs, targets)
    ranks = certified_data_ranks(problem)
    known = {"input_rank": ranks.input_rank, "residual_rank": ranks.residual_rank}
    if bias:
        known = {
            "input_rank": ranks.input_rank,
            "centred_input_rank": ranks.centred_input_rank,
            "residual_rank": ranks.residual_rank_with_bias,
            "mean_residual_is_zero": ranks.mean_residual_is_zero,
        }
    found = {part: hm.certified_rank(problem, part).value for part in PARTS}
    assert values(hm.predict_ranks(net, **known)) == found


@given(
    widths=st.lists(st.integers(1, 5), min_size=3, max_size=4).map(tuple),
    num_samples=st.integers(1, 40),
    activation=st.sampled_from(["relu", "leaky_relu"]),
    data=st.data(),
    seed=st.integers(0, 1000),
)
@share_of_examples(0.5)
def test_certified_ranks_of_relu_networks_obey_the_bounds(widths, num_samples, activation, data, seed):
    """A bias in any of the layers; the bounds know the number of samples and no rank of the data."""
    biases = data.draw(st.lists(st.booleans(), min_size=len(widths) - 1, max_size=len(widths) - 1))
    net = hm.FullyConnected(widths, bias=biases, activation=activation)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num_samples, widths[0], generator=generator, dtype=torch.float64)
    targets = torch.randn(num_samples, widths[-1], generator=generator, dtype=torch.float64)
    problem = hm.Problem(net.build(seed=seed), "squared", inputs, targets)
    bounds = hm.predict_ranks(net, kind="upper_bound", num_samples=num_samples)
    for part in PARTS:
        assert hm.certified_rank(problem, part).value <= getattr(bounds, part).value, part


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("init", ["gaussian", "uniform", "orthogonal"])
def test_formulas_equal_the_numerical_rank_on_digits(bias, loss, init):
    """61 of the 64 pixels ever light up; centred, the rank is the same."""
    net = hm.FullyConnected((64, 8, 6, 10), bias=bias)
    inputs, targets = hm.datasets.digits()
    problem = hm.Problem(net.build(seed=1, init=init), loss, inputs, targets)
    predicted = values(hm.predict_ranks(net, loss=loss, input_rank=61))
    for part, operator in OPERATORS.items():
        measured = hm.numerical_rank(operator(problem))
        assert measured.decidable, measured
        assert measured.value == predicted[part], part


def test_the_agreement_would_notice_a_formula_that_is_off_by_one():
    net = hm.FullyConnected((6, 5, 4))
    right = hm.predict_ranks(net, residual_rank=1).loss.value
    assert right == hm.generic_rank(net, residual_rank=1).value == 33
    assert hm.generic_rank(net, residual_rank=2).value != right
