"""One linear convolution with a bias, residuals of any sum."""

from __future__ import annotations

import random

import pytest

from drawn_networks import drawn_biased_convolution
from hessmap.errors import InvalidInput
from hessmap.exact.generic import generic_hessian_ranks
from hessmap.networks import Convolutional
from hessmap.theory import predict_ranks
from hessmap.theory.convolutional.one_layer import OneHiddenConvolution, biased_loss_rank


@pytest.mark.parametrize("has_last_bias", [True, False])
def test_drawn_networks_have_the_ranks_of_the_formulas(has_last_bias):
    draw = random.Random(99)
    for _ in range(15):
        network = drawn_biased_convolution(draw, has_last_bias)
        claimed = predict_ranks(network)
        found = generic_hessian_ranks(network, seed=draw.randrange(2**32))
        ranks = found["functional"].value, found["loss"].value
        assert ranks == (claimed.functional.value, claimed.loss.value), str(network)


def test_nothing_is_claimed_beyond_the_assumptions():
    net = Convolutional(9, (1, 3), (4,), outputs=4, bias=True)
    assert [predict_ranks(net).functional.kind, predict_ranks(net).loss.kind_text] == ["exact", "conjecture"]
    for options in ({"input_rank": 5}, {"residual_rank": 2}):
        assert predict_ranks(net, **options).loss.kind == "upper_bound"
    padded = Convolutional(9, (1, 3), (4,), outputs=4, bias=True, paddings=(1,))
    assert predict_ranks(padded).loss.kind == "upper_bound"
    with pytest.raises(InvalidInput, match="no more outputs than inputs; got 5 for 3"):
        biased_loss_rank(OneHiddenConvolution(3, kernel=2, filters=1, outputs=5), has_last_bias=True)


def test_the_loss_rank_is_at_most_the_parameters():
    draw = random.Random(0)
    for _ in range(500):
        kernel, positions, stride = draw.randint(1, 9), draw.randint(1, 6), draw.randint(1, 3)
        if stride > kernel:
            continue
        sizes = {"filters": draw.randint(1, 9), "outputs": draw.randint(1, kernel), "channels": draw.randint(1, 3)}
        net = OneHiddenConvolution((positions - 1) * stride + kernel, kernel, stride=stride, **sizes)
        for last in (False, True):
            weights = net.filters * (net.num_taps + 1 + net.outputs * positions)
            assert biased_loss_rank(net, last) <= weights + last * net.outputs
