"""Residual networks: their text, their sizes, what they compute and how they are read back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap.networks import Residual, ResidualBlock, describe, parse_network

SIZES = st.integers(1, 30)
ENDS = st.sampled_from([(), ("input",), ("output",), ("output", "input")])


@given(SIZES, st.integers(1, 5), st.none() | SIZES, st.none() | SIZES, st.none() | SIZES, ENDS)
def test_the_text_names_the_network_and_the_model_is_read_back(width, num_blocks, inner, inputs, outputs, ends):
    net = Residual(
        width,
        num_blocks,
        inner_width=inner,
        input_dim=inputs,
        output_dim=outputs,
        train_input="input" in ends,
        train_output="output" in ends,
        activation="tanh",
    )
    assert parse_network(str(net)) == net
    model = net.build(seed=0)
    assert describe(model) == net
    assert net.num_parameters == sum(value.numel() for value in model.parameters() if value.requires_grad)


ODD_TEXTS = (
    "residual",
    "residual-8",
    "residual-8x",
    "residual-8x0",
    "residual-8x3/",
    "residual-8x3/0",
    "residual-8x3 in",
)
ODD_TEXTS += ("residual-1-2-8x3", "residual-8x3-4-5", "residual-8x3 trained_input tanh relu")


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_texts_are_refused(text):
    with pytest.raises(InvalidInput, match="must be|at most one activation"):
        parse_network(text)


def test_odd_arguments_are_refused():
    with pytest.raises(InvalidInput, match="num_blocks must be an integer of at least 1"):
        Residual(3, 0)
    with pytest.raises(InvalidInput, match="inner_width must be an integer of at least 1"):
        Residual(3, 1, inner_width=0)
    with pytest.raises(InvalidInput, match="train_input must be True or False; got 'yes'"):
        Residual(3, 1, train_input="yes")


@pytest.mark.parametrize("inner", [None, 2])
def test_a_block_adds_to_what_it_is_given(inner):
    net = Residual(3, 2, inner_width=inner, input_dim=4, train_input=True, train_output=True)
    model = net.build(seed=2)
    inputs = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = dict(model.named_parameters())
    total = weights["0.weight"]
    for place in (1, 2):
        added = weights[f"{place}.down.weight"]
        added = added if inner is None else weights[f"{place}.up.weight"] @ added
        total = total + added @ total
    torch.testing.assert_close(model(inputs), inputs @ (weights["3.weight"] @ total).mT, rtol=1e-12, atol=1e-12)


def linear(before, after, bias=False):
    return nn.Linear(before, after, bias=bias)


UNKNOWN = {
    "holds more than linear layers": nn.Sequential(ResidualBlock(linear(3, 3, bias=True), nn.Identity())),
    "is not like the other blocks": nn.Sequential(
        ResidualBlock(linear(3, 3), nn.Identity()), ResidualBlock(linear(3, 2), nn.Identity(), linear(2, 3))
    ),
    "something between its blocks": nn.Sequential(
        ResidualBlock(linear(3, 3), nn.Identity()), nn.ReLU(), ResidualBlock(linear(3, 3), nn.Identity())
    ),
    "no single linear layer": nn.Sequential(ResidualBlock(linear(3, 3), nn.Identity()), linear(3, 2, bias=True)),
    "frozen and square": nn.Sequential(linear(3, 3).requires_grad_(False), ResidualBlock(linear(3, 3), nn.Identity())),
    "do not fit": nn.Sequential(ResidualBlock(linear(3, 2), nn.Identity(), linear(4, 3))),
}


@pytest.mark.parametrize(("reason", "model"), UNKNOWN.items(), ids=UNKNOWN)
def test_what_is_none_of_the_kind_is_refused(reason, model):
    with pytest.raises(UnsupportedNetwork, match=reason):
        describe(model)
