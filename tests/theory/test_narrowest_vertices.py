"""Deep linear convolutions cut at their narrowest vertices: against exact arithmetic and the conjectured law."""

from __future__ import annotations

import random

import pytest

import hessmap as hm
from hessmap.theory.convolutional import deep_law
from hessmap.theory.convolutional.chains import FilterChain
from hessmap.theory.convolutional.deep_law import proved_outer_product_rank


def random_chain(draw: random.Random) -> FilterChain:
    """Up to five layers; channels of which several are the least, strides up to 3."""
    num_layers, least = draw.randint(2, 5), draw.randint(1, 3)
    channels = [least + draw.choice([0, 0, 0, 1, 2]) for _ in range(num_layers + 1)]
    kernels = [draw.randint(1, 4) for _ in range(num_layers)]
    strides = [draw.choice([1, 1, 2, 3]) for _ in range(num_layers - 1)]
    return FilterChain(tuple(channels), tuple(kernels), (*strides, 1))


def network_of(chain: FilterChain) -> hm.Convolutional:
    length = chain.kernels[-1]
    for kernel, stride in zip(chain.kernels[-2::-1], chain.strides[-2::-1], strict=True):
        length = (length - 1) * stride + kernel
    channels, outputs = chain.channels[:-1], chain.channels[-1]
    return hm.Convolutional(length, channels, chain.kernels[:-1], chain.strides[:-1], outputs=outputs)


def test_it_is_the_exact_rank_and_the_law():
    draw, num_tried = random.Random(5), 0
    while num_tried < 60:
        chain = random_chain(draw)
        proved = proved_outer_product_rank(chain)
        network = network_of(chain)
        if proved is None or chain.num_parameters > 90 or network.input_dim > 50:
            continue
        num_tried += 1
        assert hm.generic_rank(network, "outer_product", seed=num_tried).value == proved, chain
        assert deep_law.outer_product_rank(chain) == proved, chain


def test_the_law_agrees_on_4000_larger_chains_wherever_it_is_proved():
    draw, num_proved = random.Random(6), 0
    for _ in range(4000):
        chain = random_chain(draw)
        proved = proved_outer_product_rank(chain)
        if proved is not None:
            num_proved += 1
            assert deep_law.outer_product_rank(chain) == proved, chain
    assert num_proved > 2000


@pytest.mark.parametrize(("channels", "kernels"), [((3, 2, 2, 4), (3, 2, 4)), ((5, 4, 4, 4, 6), (2, 2, 2, 3))])
def test_equal_hidden_channels_lose_their_gauge_alone(channels, kernels):
    chain = FilterChain(channels, kernels)
    expected = chain.num_parameters - (chain.num_layers - 1) * channels[1] ** 2
    assert proved_outer_product_rank(chain) == expected


def test_the_prediction_is_exact_where_it_is_proved_and_the_inputs_are_of_full_rank():
    network = hm.Convolutional(9, channels=(3, 2, 2), kernels=(3, 3), outputs=4)
    assert hm.predict_ranks(network).outer_product.kind == "exact"
    assert hm.predict_ranks(network, input_rank=20).outer_product.kind != "exact"
    assert hm.predict_ranks(network, loss="cross_entropy").outer_product.kind == "exact"
    one_input = hm.Convolutional(9, channels=(1, 2, 2), kernels=(3, 3), outputs=4)
    assert hm.predict_ranks(one_input).outer_product.kind == "conjecture"
