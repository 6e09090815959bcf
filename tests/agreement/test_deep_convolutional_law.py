"""The law of deep linear convolutional networks and its bounds, against exact ranks of generic networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drawn_networks import network_of
from golden_tables import each, table
from hessmap.errors import InvalidInput
from hessmap.exact import generic_rank
from hessmap.hessians.operators import functional_hessian
from hessmap.measurement import numerical_rank
from hessmap.networks import Convolutional
from hessmap.problem.problem import Problem
from hessmap.theory.convolutional import deep_bounds as deep_convolutional
from hessmap.theory.convolutional import one_layer as convolutional
from hessmap.theory.convolutional.chains import FilterChain, convolutional_chain
from hessmap.theory.convolutional.deep_columns import (
    functional_column_upper_bounds,
    functional_upper_bound,
    layer_upper_bounds,
    loss_upper_bound,
)
from hessmap.theory.convolutional.deep_law import outer_product_rank, product_dimension

DEEP = [case for case in table("ranks")["cases"] if case["family"] == "cnn_deep"]


@st.composite
def chains(draw: st.DrawFn) -> FilterChain:
    num_layers = draw(st.integers(2, 4))
    channels = [draw(st.integers(1, 4)) for _ in range(num_layers + 1)]
    kernels = [draw(st.integers(1, 4)) for _ in range(num_layers)]
    strides = [draw(st.integers(1, 2)) for _ in range(num_layers - 1)]
    return FilterChain(tuple(channels), tuple(kernels), (*strides, 1))


@given(chains().filter(lambda chain: chain.num_parameters <= 90), st.integers(0, 2**32))
def test_law_is_exact_and_bounds_hold_on_generic_networks(chain: FilterChain, seed: int) -> None:
    network = network_of(chain)
    assert generic_rank(network, "outer_product", seed=seed).value == outer_product_rank(chain)
    assert generic_rank(network, "functional", seed=seed).value <= functional_upper_bound(chain)
    assert generic_rank(network, "loss", seed=seed).value <= loss_upper_bound(chain)


ROUNDED = {  # networks on which the count of parameters less gauge is too large by rounding alone
    "one hidden layer": (FilterChain((1, 3, 5), (8, 2)), 44, 45),
    "merged to one": (FilterChain((1, 4, 4, 7), (10, 2, 2)), 82, 84),
    "two free vertices": (FilterChain((1, 1, 4, 11), (8, 9, 2)), 111, 115),
    "wide inputs": (FilterChain((2, 1, 3, 10), (10, 6, 2)), 85, 88),
}


@pytest.mark.parametrize(("chain", "rank", "count"), ROUNDED.values(), ids=ROUNDED)
def test_rounding_of_degrees_is_counted(chain: FilterChain, rank: int, count: int) -> None:
    assert outer_product_rank(chain) == rank < count
    assert generic_rank(network_of(chain), "outer_product").value == rank


@each(DEEP)
def test_stored_cases(case: dict[str, Any]) -> None:
    chain = convolutional_chain(case["d0"], (1, *case["channels"]), case["kernels"], case["K"])
    assert outer_product_rank(chain) == case["true"]["Ho"]
    columns = functional_column_upper_bounds(chain)
    assert all(exact <= bound for exact, bound in zip(case["Hf_col_ranks"], columns, strict=True))
    assert all(bound <= printed for bound, printed in zip(columns, case["paper"]["Hf_col_bounds"], strict=True))
    assert case["true"]["Hf"] <= functional_upper_bound(chain)
    assert case["true"]["HL"] <= loss_upper_bound(chain)


@given(chains())
def test_law_is_never_above_the_bound_by_toeplitz_matrices(chain: FilterChain) -> None:
    network = network_of(chain)
    units, parameters = network.widths, network.layer_parameters
    assert outer_product_rank(chain) <= deep_convolutional.outer_product_upper_bound(units, parameters)
    layers = zip(functional_column_upper_bounds(chain), layer_upper_bounds(chain), parameters, strict=True)
    assert all(column <= layer <= own for column, layer, own in layers)


@given(chains())
def test_one_hidden_layer_is_the_formula_of_its_own_file(chain: FilterChain) -> None:
    network = network_of(FilterChain(chain.channels[:3], chain.kernels[:2], (chain.strides[0], 1)))
    net = convolutional.OneHiddenConvolution(
        network.input_length,
        network.kernels[0],
        network.channels[1],
        network.outputs,
        network.channels[0],
        network.strides[0],
    )
    short = convolutional_chain(
        network.input_length, network.channels, network.kernels, network.outputs, network.strides
    )
    assert outer_product_rank(short) == convolutional.outer_product_rank(net)
    assert functional_upper_bound(short) == convolutional.functional_rank(net)
    assert loss_upper_bound(short) >= convolutional.loss_rank(net)


def test_mirrored_chain_of_stride_1_has_the_same_law_and_the_mirrored_bounds() -> None:
    chain = FilterChain((2, 3, 5, 1, 4), (3, 1, 4, 2))
    mirror = FilterChain(chain.channels[::-1], chain.kernels[::-1])
    assert outer_product_rank(chain) == outer_product_rank(mirror)
    assert functional_column_upper_bounds(chain) == functional_column_upper_bounds(mirror)[::-1]
    assert product_dimension(chain, 1, 3) == product_dimension(mirror, 1, 3)


@pytest.mark.parametrize("channels", [(1, 2, 2), (1, 2, 3), (1, 3, 2), (1, 3, 3)])
def test_pencils_between_equal_numbers_of_channels_share_more_than_one_form(channels: tuple[int, ...]) -> None:
    """Two taps each, one output: wide ends count as two channels, and a square pencil of two shares two forms."""
    network = Convolutional(4, channels, (2, 2), outputs=1)
    chain = convolutional_chain(4, channels, (2, 2), 1)
    assert functional_upper_bound(chain) == generic_rank(network, "functional").value


def test_a_residual_that_is_a_sum_of_values_at_points_tells_forms_twice() -> None:
    """The smallest network known with such a residual: one form less than all changes of its ends tell."""
    network, chain = Convolutional(6, (1, 2, 3), (3, 3), outputs=2), convolutional_chain(6, (1, 2, 3), (3, 3), 2)
    assert generic_rank(network, "functional").value == 34 == functional_upper_bound(chain)


def test_block_columns_of_full_rank_need_not_add_up() -> None:
    """The counterexample to "the ranks of the block columns add": 9 + 30 + 25 = p = 64, and the rank is 63."""
    network = Convolutional(6, (3, 3, 5), (1, 2), outputs=1)
    assert generic_rank(network, "functional").value == 63
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 18, generator=generator, dtype=torch.float64)
    targets = torch.randn(40, 1, generator=generator, dtype=torch.float64)
    hessian = functional_hessian(Problem(network.build(seed=0), "squared", inputs, targets))
    dense = hessian.to_dense()
    columns = [numerical_rank(dense[:, place].T @ dense[:, place]).value for _, place in hessian.layout]
    assert columns == [9, 30, 25] == list(functional_column_upper_bounds(convolutional_chain(6, (3, 3, 5), (1, 2), 1)))
    assert numerical_rank(hessian).value == 63


def test_impossible_chains_are_refused() -> None:
    with pytest.raises(InvalidInput, match="got 2 channels, 2 kernels, 2 strides"):
        FilterChain((1, 2), (3, 3))
    with pytest.raises(InvalidInput, match="kernels must be"):
        FilterChain((1, 2), (0,))
    with pytest.raises(InvalidInput, match=r"at least two layers; got 1\."):
        loss_upper_bound(FilterChain((1, 2), (3,)))
    with pytest.raises(InvalidInput, match="kernel is 4, input length 2"):
        convolutional_chain(4, (1, 1, 1), (3, 4), outputs=1)
