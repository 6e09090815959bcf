"""Inputs of low rank: fewer inputs of a dense layer, sums of products of subspaces for patches."""

from __future__ import annotations

import random

import pytest

from drawn_networks import LOW_RANK, drawn_low_rank
from hessmap.exact.generic import generic_hessian_ranks
from hessmap.networks import FullyConnected, LocallyConnected
from hessmap.records import PARTS
from hessmap.theory import predict_ranks
from hessmap.theory.locally_connected import locally_connected_ranks, loss_rank, outer_product_rank


@pytest.mark.parametrize("seed", range(200))
def test_inputs_of_rank_r_are_r_inputs(seed):
    """A dense first layer sees the span of its inputs alone, with a bias or without."""
    draw = random.Random(seed)
    hidden = tuple(draw.randint(1, 6) for _ in range(draw.randint(2, 4)))
    inputs, bias = draw.randint(2, 7), draw.random() < 0.5
    rank = draw.randint(1, inputs - 1)
    low = predict_ranks(FullyConnected((inputs, *hidden), bias=bias), input_rank=rank)
    small = predict_ranks(FullyConnected((rank, *hidden), bias=bias))
    for part in PARTS:
        one, other = getattr(low, part), getattr(small, part)
        assert (one.value, one.kind) == (other.value, other.kind)
        assert bias or one.kind == "exact"


@pytest.mark.parametrize("seed", range(100))
def test_full_rank_is_the_theorem_of_patches(seed):
    draw = random.Random(seed)
    sizes = tuple(draw.randint(1, 6) for _ in range(4))
    full = locally_connected_ranks(*sizes)
    rank = sizes[0] * sizes[1]
    assert outer_product_rank(*sizes, rank).value == full.outer_product
    found = loss_rank(*sizes, rank)
    assert found.value == full.loss if found.is_exact else found.value >= full.loss


def test_the_residual_itself_is_never_told_by_four_patches():
    """T would be all of e r = 16; what the residual itself is orthogonal to is one less. The exact rank is 62."""
    assert loss_rank(4, 2, 3, 4, input_rank=4) == (63, False)


def test_every_kind_of_claim_is_made():
    few, many = LocallyConnected(3, 4, 2, 5), LocallyConnected(5, 4, 1, 5)
    assert [getattr(predict_ranks(few, input_rank=7), part).kind for part in PARTS] == ["exact"] * 3
    assert predict_ranks(few, input_rank=7, residual_rank=2).loss.kind == "upper_bound"
    assert predict_ranks(many, input_rank=13).outer_product.kind == "upper_bound"


@pytest.mark.parametrize("family", LOW_RANK)
def test_drawn_networks_have_what_is_claimed(family):
    draw = random.Random(99)
    for _ in range(8):
        network, rank = drawn_low_rank(draw, family)
        claimed = predict_ranks(network, input_rank=rank)
        found = generic_hessian_ranks(network, input_rank=rank, seed=draw.randrange(2**32))
        for part in PARTS:
            claim, exact = getattr(claimed, part), found[part].value
            assert claim.allows(exact), (str(network), rank)
