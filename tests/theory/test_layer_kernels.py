"""Directions of single layers that no loss Hessian sees: the theorem's bound and the conjectured rank."""

from __future__ import annotations

import random

import pytest

from drawn_networks import drawn_chain, network_of
from hessmap.exact.generic import generic_hessian_ranks
from hessmap.networks import Convolutional
from hessmap.theory import predict_ranks
from hessmap.theory.convolutional.chains import FilterChain
from hessmap.theory.convolutional.deep_columns import (
    functional_upper_bound,
    layer_kernel_dimensions,
    layer_upper_bounds,
    loss_kernel_upper_bound,
)

FOUND = [  # channels, kernels, strides, rank of H_f, rank of H_L: networks on which earlier bounds were too large
    ((1, 2, 3, 2), (3, 3, 2), (), 34, 36),
    ((2, 3, 2, 1), (2, 3, 3), (), 34, 36),
    ((1, 3, 3, 1), (4, 3, 5), (), 52, 53),
    ((1, 3, 3, 1), (4, 4, 4), (), 47, 54),
    ((1, 2, 3, 1), (3, 5, 4), (), 35, 43),
    ((1, 2, 4, 2), (4, 6, 2), (), 47, 63),
    ((1, 3, 3, 1, 1, 4), (2, 5, 2, 1, 4), (), 37, 46),
    ((1, 2, 4, 1, 1), (3, 3, 4, 4), (), 49, 50),
    ((3, 4, 1, 2), (5, 5, 3), (2, 1, 1), 51, 80),
    ((3, 3, 1, 5), (5, 4, 1), (3, 3, 1), 33, 61),
    ((3, 1, 4, 4), (5, 4, 4), (2, 3, 1), 61, 90),
]


@pytest.mark.parametrize(("channels", "kernels", "strides", "functional", "loss"), FOUND)
def test_networks_that_refuted_equality_before(channels, kernels, strides, functional, loss):
    chain = FilterChain(channels, kernels, strides)
    exact = generic_hessian_ranks(network_of(chain), seed=3)
    assert (exact["functional"].value, exact["loss"].value) == (functional, loss)
    assert (functional_upper_bound(chain), sum(layer_upper_bounds(chain))) == (functional, loss)


@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed):
    draw = random.Random(seed)
    largest_stride = (1, 3)[seed % 2]
    chain = drawn_chain(draw, 2 + seed % 3, largest_stride)
    exact = generic_hessian_ranks(network_of(chain), seed=seed)["loss"].value
    assert exact <= loss_kernel_upper_bound(chain)
    if largest_stride == 1:
        assert exact == sum(layer_upper_bounds(chain))


def test_the_columns_of_a_functional_hessian_need_not_add_up():
    """The one network of stride 1 that is known to be below the bound of H_f."""
    chain = FilterChain((3, 3, 5, 1), (1, 2, 5))
    exact = generic_hessian_ranks(network_of(chain), seed=1)
    assert (exact["functional"].value, functional_upper_bound(chain), exact["loss"].value) == (63, 64, 64)


def test_the_prediction_names_theorem_and_conjecture():
    net = Convolutional(10, (1, 3, 3), (4, 4), outputs=1)
    assert predict_ranks(net).loss.kind_text == "conjecture"
    assert predict_ranks(net).loss.value == 54
    proved = predict_ranks(net, kind="upper_bound").loss
    assert (proved.value, proved.kind) == (54, "upper_bound")
    assert "single layers" in proved.reference


def test_many_layers_and_large_widths_take_no_time():
    chain = FilterChain(tuple(range(64, 0, -1)), (3,) * 63)
    assert all(
        0 <= lost <= size for lost, size in zip(layer_kernel_dimensions(chain), chain.layer_parameters, strict=True)
    )
    wide = FilterChain((3, 10**6, 10**9, 10), (5, 7, 11))
    assert loss_kernel_upper_bound(wide) < wide.num_parameters


def test_the_functional_rank_is_that_of_the_outputs_that_the_residual_sees():
    net, smaller = (Convolutional(3, (1, 3, 2), (1, 3), outputs=outputs) for outputs in (2, 1))
    exact = generic_hessian_ranks(net, residual_rank=1, seed=1)["functional"].value
    assert exact == generic_hessian_ranks(smaller, seed=1)["functional"].value
    assert predict_ranks(net, residual_rank=1).functional.value == exact == 9
