"""Tangent functions of networks linear in the input and of linear attention with skips, counted in finite fields."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from flint import nmod_mat

from hessmap.errors import InvalidInput
from hessmap.exact import generic_rank
from hessmap.networks import Convolutional, FullyConnected, SelfAttention
from hessmap_research.formulas.tangent_functions import attention_tangent_rank, linear_map_upper_bound

PRIME = 2**26 - 5  # sums of products of two entries stay within 64 bits
NUM_SIZES = 281  # of the 2,000 draws
SIZES = [
    (1, 2, 1, None),
    (1, 3, 2, None),
    (1, 3, 1, 2),
    (2, 2, 1, None),
    (2, 3, 2, None),
    (2, 2, 1, 1),
    (2, 3, 2, 1),
    (3, 2, 1, None),
    (3, 2, 2, 1),
]


def tangent_rank(
    num_layers: int, width: int, key_width: int, value_width: int | None, has_skips: bool = True, seed: int = 0
) -> int:
    """The rank of the Jacobian with more tokens than parameters (values of width one make one number of a token),
    weights and tokens uniform modulo a prime."""
    generator = np.random.default_rng(seed)
    values = [(width, value_width), (value_width, width)] if value_width else [(width, width)]
    shapes: list[Any] = [(width, key_width), (width, key_width), *values] * num_layers
    weights = [generator.integers(0, PRIME, size=shape) for shape in shapes]
    sizes = [weight.size for weight in weights]
    tokens = generator.integers(0, PRIME, size=(sum(sizes) // 3 + 3, 3, width))

    def direction(number: int) -> Any:
        """The change of a weight along every parameter."""
        change = np.zeros((sum(sizes), 1, *weights[number].shape), dtype=np.int64)
        start = sum(sizes[:number])
        change[start : start + sizes[number], 0] = np.eye(sizes[number], dtype=np.int64).reshape(-1, *shapes[number])
        return change

    def product(*factors: tuple[Any, Any]) -> tuple[Any, Any]:
        """Values and derivatives of a product of matrices, each given with its derivative."""
        value, change = factors[0]
        for factor, added in factors[1:]:
            value, change = value @ factor % PRIME, (change @ factor + value @ added) % PRIME
        return value, change

    def transposed(pair: tuple[Any, Any]) -> tuple[Any, Any]:
        return pair[0].swapaxes(-1, -2), pair[1].swapaxes(-1, -2)

    pairs = [(weight, direction(number)) for number, weight in enumerate(weights)]
    state = (tokens, np.zeros((sum(sizes), *tokens.shape), dtype=np.int64))
    per_layer = len(shapes) // num_layers
    for layer in range(num_layers):
        query, key, *rest = pairs[per_layer * layer : per_layer * (layer + 1)]
        found = product(state, query, transposed(key), transposed(state), state, *rest)
        state = ((found[0] + state[0]) % PRIME, (found[1] + state[1]) % PRIME) if has_skips else found
    rows = state[1].reshape(sum(sizes), -1)
    return int(nmod_mat(*rows.shape, [int(entry) for entry in rows.ravel()], PRIME).rank())


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_attention_with_skips_loses_its_groups_alone(sizes: tuple[int, int, int, int | None]) -> None:
    assert tangent_rank(*sizes) == attention_tangent_rank(*sizes)


@pytest.mark.slow
def test_attention_with_skips_loses_its_groups_alone_in_2000_draws() -> None:
    """Drawn after the formula was fixed. It is an upper bound by its groups, so that one draw proves it for a size."""
    draw = random.Random(2027)
    sizes = set()
    for number in range(2000):
        layers = draw.choice((1, 2, 2, 3, 3, 4))
        width = draw.choice((2, 3, 4, 5, 6) if layers < 3 else (2, 3, 4))
        keys, values = draw.randint(1, width), draw.choice((None, *range(1, width + 1)))
        found = tangent_rank(layers, width, keys, values, seed=number)
        assert found == attention_tangent_rank(layers, width, keys, values)
        sizes.add((layers, width, keys, values))
    assert len(sizes) == NUM_SIZES


def test_without_skips_layers_lose_more() -> None:
    """The scale and the GL(d) between layers are further groups: the formula needs the skips from two layers on."""
    assert tangent_rank(2, 2, 1, None, has_skips=False) < attention_tangent_rank(2, 2, 1)
    assert tangent_rank(1, 3, 2, None, has_skips=False) == attention_tangent_rank(1, 3, 2)


@pytest.mark.parametrize(("width", "keys"), [(2, 1), (3, 2), (4, 3)])
def test_one_layer_agrees_with_the_exact_ranks_of_the_library(width: int, keys: int) -> None:
    """A value of its own width, not projected back: the same two groups."""
    network = SelfAttention(width, keys)
    assert network.num_parameters - generic_rank(network, "outer_product", "squared").value == keys**2 + 1


def test_networks_linear_in_the_input_have_a_bounded_rank() -> None:
    """H_o stays at K r while the parameters grow; H_f grows as the widths, hence the square root."""
    found = []
    for width in (4, 8, 16):
        network = FullyConnected((3, width, width, 2))
        ranks = [generic_rank(network, part, "squared").value for part in ("outer_product", "functional")]
        found.append((network.num_parameters, *ranks))
    assert found == [(36, 6, 28), (104, 6, 60), (336, 6, 124)]
    bound = linear_map_upper_bound(4, 2)
    for other in (Convolutional(4, (1, 9), (2,), outputs=2), FullyConnected((4, 7, 2))):
        assert generic_rank(other, "outer_product", "squared").value <= bound < other.num_parameters


def test_wide_keys_are_refused() -> None:
    with pytest.raises(InvalidInput, match="key_width and value_width must be at most 2; got 3 and 0"):
        attention_tangent_rank(1, 2, 3)
