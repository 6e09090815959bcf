"""Bounds of the loss Hessian by columns, against exact ranks of generic networks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hessmap.errors import InvalidInput
from hessmap.exact import generic_rank
from hessmap.networks import Convolutional, FullyConnected
from hessmap.theory.convolutional.deep_bounds import loss_column_upper_bounds


@st.composite
def small_networks(draw: st.DrawFn) -> tuple[Convolutional, int, int]:
    length = draw(st.integers(3, 8))
    kernels, left = [], length
    for _ in range(draw(st.integers(1, 3))):
        kernels.append(draw(st.integers(1, min(4, left))))
        left -= kernels[-1] - 1
    channels = [draw(st.integers(1, 2)), *(draw(st.integers(1, 3)) for _ in kernels)]
    net = Convolutional(length, channels, kernels, outputs=draw(st.integers(1, 4)))
    rank = draw(st.integers(1, net.input_dim))
    return net, rank, draw(st.integers(1, min(rank, net.outputs)))


@given(small_networks())
def test_no_exact_rank_is_above_the_sum_of_the_columns(drawn: tuple[Convolutional, int, int]) -> None:
    net, rank, residual = drawn
    columns = loss_column_upper_bounds(net.widths, net.layer_parameters, residual, rank)
    exact = generic_rank(net, "loss", input_rank=rank, residual_rank=residual).value
    assert exact <= sum(columns)
    assert all(column <= own for column, own in zip(columns, net.layer_parameters, strict=True))


@pytest.mark.parametrize("widths", [(5, 4, 3), (3, 1, 4), (6, 2, 5, 2, 6), (4, 4, 4, 4)])
def test_the_bound_holds_for_dense_networks_with_and_without_a_bottleneck(widths: tuple[int, ...]) -> None:
    parameters = [before * after for before, after in pairwise(widths)]
    exact = generic_rank(FullyConnected(widths), "loss").value
    assert exact <= sum(loss_column_upper_bounds(widths, parameters))


def test_one_number_per_layer_is_asked_for() -> None:
    with pytest.raises(InvalidInput, match="one number per layer; got 1 for 2 layers"):
        loss_column_upper_bounds((3, 2, 1), (2,))
