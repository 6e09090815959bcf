"""Claims about networks on images, padded and biased, against exact generic ranks; and those against floats."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from hessmap.errors import InvalidInput
from hessmap.exact import generic_rank
from hessmap.hessians.operators import functional_hessian, loss_hessian, outer_product_hessian
from hessmap.measurement import numerical_rank
from hessmap.networks import Convolutional, ImageConvolutional, parse_network
from hessmap.problem.problem import Problem
from hessmap.records import PARTS
from hessmap.theory import predict_ranks
from hessmap.theory.convolutional.chains import channel_mixing_upper_bound

HESSIANS = dict(zip(PARTS, (outer_product_hessian, functional_hessian, loss_hessian), strict=True))


@st.composite
def images(draw: Any, padded: bool, bias: bool) -> ImageConvolutional:
    depth = draw(st.integers(1, 3))
    size = current = (draw(st.integers(1, 5)), draw(st.integers(1, 5)))
    kernels, strides, paddings = [], [], []
    for _ in range(depth):
        paddings.append(draw(st.integers(0, 1)) if padded else 0)
        strides.append(draw(st.integers(1, 2)))
        kernels.append(tuple(draw(st.integers(1, min(3, length + 2 * paddings[-1]))) for length in current))
        current = tuple(
            (length + 2 * paddings[-1] - taps) // strides[-1] + 1
            for length, taps in zip(current, kernels[-1], strict=True)
        )
    channels = (draw(st.integers(1, 2)), *draw(st.lists(st.integers(1, 4), min_size=depth, max_size=depth)))
    biases = draw(st.lists(st.booleans(), min_size=depth + 1, max_size=depth + 1)) if bias else False
    net = ImageConvolutional(size, channels, kernels, strides, draw(st.integers(1, 3)), biases, paddings=paddings)
    assume(net.num_parameters <= 100)
    return net


@given(
    st.data(),
    st.booleans().flatmap(lambda padded: st.booleans().flatmap(lambda bias: images(padded, bias))),
    st.sampled_from(["squared", "cross_entropy"]),
)
def test_no_rank_is_above_its_claim(data: Any, net: ImageConvolutional, loss: str) -> None:
    input_rank = data.draw(st.just(net.input_dim) | st.integers(1, net.input_dim))
    known: dict[str, Any] = {"input_rank": input_rank}
    if net.has_bias:
        known["centred_input_rank"] = input_rank
    prediction = predict_ranks(net, loss, **known)
    for part in PARTS:
        claim = getattr(prediction, part)
        found = generic_rank(net, part, loss, **known).value
        assert claim.allows(found), (part, claim)


@pytest.mark.parametrize("text", ["conv-1x4x4-2x3x2+1-3x2x2/2-2", "conv-2x3x4-3x2x2-2 bias"])
def test_exact_ranks_are_those_of_the_model_that_is_built(text: str) -> None:
    net = parse_network(text)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(60, net.input_dim, generator=generator, dtype=torch.float64)
    targets = torch.randn(60, net.output_dim, generator=generator, dtype=torch.float64)
    problem = Problem(net.build(seed=0), "squared", inputs, targets)
    for part, hessian in HESSIANS.items():
        measured = numerical_rank(hessian(problem))
        assert measured.decidable
        assert measured.value == generic_rank(net, part).value


@pytest.mark.parametrize(
    ("text", "mixing"),
    [
        ("conv-1x4x4-2x2x2+1-3", 8 + 150 - 4),  # one hidden layer of 2 channels
        ("conv-1x4x4-6x2x2+1-3", 24 + 450 - (36 - 2 * 0)),  # 6 channels, of 4 taps: not fed from the input
        ("conv-1x6-2x3+1-3x3+1-9 bias", 8 + 21 + 171 - 4 - 9 - 3),  # padding keeps the first bias where it is
        ("conv-1x6-2x3+1-3x3-9 bias", 8 + 21 + 117 - 4 - 9 - 2 - 3),
    ],
)
def test_mixed_channels_by_hand(text: str, mixing: int) -> None:
    net = parse_network(text)
    assert isinstance(net, Convolutional | ImageConvolutional)
    padded = [padding > 0 for padding in net.paddings]
    channels = (*net.channels, net.outputs)
    assert channel_mixing_upper_bound(channels, net.layer_parameters, net.biases, padded) == mixing
    assert generic_rank(net, "outer_product").value <= mixing


@pytest.mark.parametrize("text", ["conv-1x6x3-4x1x3/2-1 bias", "conv-1x3-4x3-1 bias", "conv-1x4-3x2b-1b"])
def test_a_bias_that_feeds_its_filters_cannot_be_moved_as_well(text: str) -> None:
    net = parse_network(text)
    assert predict_ranks(net).outer_product.value >= generic_rank(net, "outer_product").value


def test_mixed_channels_are_all_that_some_padded_network_loses() -> None:
    """Many inputs: only mixing takes directions from the outer product, and the bound is the rank."""
    net = ImageConvolutional(6, (2, 2, 2), (2, 2), (2, 2), outputs=3, paddings=(0, 1))
    prediction = predict_ranks(net).outer_product
    assert "mixing" in prediction.reference
    assert prediction.value == generic_rank(net, "outer_product").value == net.num_parameters - 8


def test_a_chain_of_images_that_is_one_pixel_wide_is_that_of_one_dimension() -> None:
    image = predict_ranks(ImageConvolutional((9, 1), (1, 2, 2), ((3, 1), (3, 1)), outputs=4))
    line = predict_ranks(Convolutional(9, (1, 2, 2), (3, 3), outputs=4))
    assert [getattr(image, part).value for part in PARTS] == [getattr(line, part).value for part in PARTS]
    assert image.outer_product.kind_text != "exact"


def test_a_bound_is_missed_where_two_filters_have_a_common_multiple() -> None:
    """W_2 W_1 - W_1 W_2 = 0: with two variables even two filters are not onto, and products of them are fewer."""
    net = ImageConvolutional(6, (1, 2), (2,), outputs=3)
    assert (predict_ranks(net).outer_product.value, generic_rank(net, "outer_product").value) == (108, 106)


def test_lists_of_the_wrong_length_are_refused() -> None:
    with pytest.raises(InvalidInput, match="channel mixing needs the parameters"):
        channel_mixing_upper_bound((1, 2, 3), (18,))
