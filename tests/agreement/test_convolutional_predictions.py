"""Predictions for convolutional and locally connected networks against generic ranks, for all sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from example_shares import share_of_examples
from hessmap.exact import certified_rank, generic_rank
from hessmap.networks import Convolutional, LocallyConnected
from hessmap.problem.problem import Problem
from hessmap.records import PARTS
from hessmap.theory import effective_output_dim, predict_ranks

LARGEST = 120

losses = st.sampled_from(["squared", "cross_entropy", "log_cosh"])


@st.composite
def convolutions(draw: Any, num_hidden: int, bias: bool = False, padded: bool = False) -> Convolutional:
    length = current = draw(st.integers(1, 9))
    kernels, strides, paddings = [], [], []
    for _ in range(num_hidden):
        paddings.append(draw(st.integers(0, 2)) if padded else 0)
        kernels.append(draw(st.integers(1, current + 2 * paddings[-1])))
        strides.append(draw(st.integers(1, 3)))
        current = (current + 2 * paddings[-1] - kernels[-1]) // strides[-1] + 1
    channels = (draw(st.integers(1, 2)), *draw(st.lists(st.integers(1, 4), min_size=num_hidden, max_size=num_hidden)))
    biases = draw(st.lists(st.booleans(), min_size=num_hidden + 1, max_size=num_hidden + 1)) if bias else False
    net = Convolutional(length, channels, kernels, strides, draw(st.integers(1, 4)), biases, paddings=paddings)
    assume(net.num_parameters <= LARGEST)
    return net


@st.composite
def data_ranks(draw: Any, net: Any, loss: str) -> dict[str, int]:
    """Full or any rank of the inputs; generic or any rank of the residuals."""
    input_rank = draw(st.just(net.input_dim) | st.integers(1, net.input_dim))
    given: dict[str, int] = {"input_rank": input_rank}
    if net.has_bias:
        given["centred_input_rank"] = input_rank
    largest = min(effective_output_dim(net.output_dim, loss), input_rank + net.has_bias)
    residual_rank = draw(st.none() | st.integers(0, largest))
    return given if residual_rank is None else given | {"residual_rank": residual_rank}


def check(net: Any, loss: str, given: dict[str, int]) -> None:
    prediction = predict_ranks(net, loss=loss, **given)  # type: ignore[arg-type]
    for part in PARTS:
        predicted, found = getattr(prediction, part), generic_rank(net, part, loss, **given).value
        assert predicted.allows(found), (part, predicted)


@given(st.data(), convolutions(num_hidden=1), losses)
def test_one_hidden_convolution_of_any_stride_and_channels(data: Any, net: Convolutional, loss: str) -> None:
    check(net, loss, data.draw(data_ranks(net, loss)))


@given(st.data(), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.booleans(), losses)
def test_networks_on_patches_with_and_without_shared_weights(
    data: Any, patches: int, size: int, filters: int, outputs: int, shared: bool, loss: str
) -> None:
    net = LocallyConnected(patches, size, filters, outputs, shared_weights=shared)
    check(net, loss, data.draw(data_ranks(net, loss)))


@given(
    st.data(),
    st.one_of(
        convolutions(num_hidden=2),
        convolutions(num_hidden=3),
        convolutions(num_hidden=1, bias=True),
        convolutions(num_hidden=2, bias=True),
        convolutions(num_hidden=1, padded=True),
        convolutions(num_hidden=2, padded=True),
    ),
    losses,
)
def test_deep_biased_and_padded_convolutions_obey_their_bounds(data: Any, net: Convolutional, loss: str) -> None:
    check(net, loss, data.draw(data_ranks(net, loss)))


@share_of_examples(0.5)
@given(
    st.integers(0, 10**6),
    convolutions(num_hidden=1) | convolutions(num_hidden=2, bias=True) | convolutions(num_hidden=2, padded=True),
    st.booleans(),
)
def test_relu_networks_obey_their_bounds_on_drawn_data(seed: int, linear: Convolutional, local: bool) -> None:
    """Certified ranks on Gaussian data, and the bounds that hold for all weights and data."""
    net: Any = replace(linear, activation="relu")
    if local:
        net = LocallyConnected(2, 3, 1 + seed % 3, 2, shared_weights=bool(seed % 2), activation="relu")
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(40, net.input_dim, generator=generator, dtype=torch.float64)
    targets = torch.randn(40, net.output_dim, generator=generator, dtype=torch.float64)
    problem = Problem(net.build(seed=seed), "squared", inputs, targets)
    bounds = predict_ranks(net, kind="upper_bound")
    for part in PARTS:
        assert certified_rank(problem, part).value <= getattr(bounds, part).value


@pytest.mark.slow
@share_of_examples(10)
@given(st.data(), convolutions(num_hidden=1) | convolutions(num_hidden=2), losses)
def test_a_thousand_convolutions(data: Any, net: Convolutional, loss: str) -> None:
    check(net, loss, data.draw(data_ranks(net, loss)))


def test_bounds_of_two_convolutions_are_the_ranks_of_the_generic_network() -> None:
    net = Convolutional(16, channels=(1, 4, 4), kernels=(7, 7), outputs=4)

    predicted = predict_ranks(net, loss="squared")

    assert [getattr(predicted, part).value for part in PARTS] == [64, 159, 171]
    assert [getattr(predicted, part).kind_text for part in PARTS] == ["conjecture", "conjectured bound", "conjecture"]
    assert [generic_rank(net, part).value for part in PARTS] == [64, 159, 171]
