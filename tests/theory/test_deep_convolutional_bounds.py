"""Deep convolutions as tied dense networks in exact arithmetic: the bounds hold for every layer."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exact_oracle import (
    columns_of,
    field_matrix,
    hessians,
    plain,
    random_inputs,
    random_matrix,
    rank,
)
from example_shares import share_of_examples
from hessmap.errors import InvalidInput
from hessmap.theory.convolutional import deep_bounds as deep_convolutional


def toeplitz(length, before, after, kernel, stride):
    """The dense matrix of a convolution: for each entry, the place of its weight among the free ones, or None."""
    positions = (length - kernel) // stride + 1
    places = [[None] * (before * length) for _ in range(after * positions)]
    for i in range(after):
        for j in range(positions):
            for c in range(before):
                for tap in range(kernel):
                    places[i * positions + j][c * length + j * stride + tap] = (i * before + c) * kernel + tap
    return places, positions


def tied_ranks(input_length, channels, kernels, strides, outputs, seed):
    """Ranks of the three Hessians and of the block columns of the functional one, in the free parameters."""
    draw, length, layers, ties, start = random.Random(seed), input_length, [], [], 0
    for (before, after), kernel, stride in zip(pairwise(channels), kernels, strides, strict=True):
        places, length = toeplitz(length, before, after, kernel, stride)
        weights = random_matrix(draw, 1, before * after * kernel)[0]
        layers.append([[0 if place is None else weights[place] for place in row] for row in places])
        ties += [None if place is None else start + place for row in places for place in row]
        start += len(weights)
    layers.append(random_matrix(draw, outputs, channels[-1] * length))
    ties += range(start, start + outputs * len(layers[-1][0]))
    num_free = start + outputs * len(layers[-1][0])
    inputs = random_inputs(draw, len(layers[0][0]), len(layers[0][0]), len(layers[0][0]), len(layers[0][0]) + 1)
    identity = [[int(i == j) for j in range(outputs)] for i in range(outputs)]
    dense = hessians(layers, inputs, random_matrix(draw, len(inputs), outputs), [identity] * len(inputs))
    tie = field_matrix([[int(place == free) for free in range(num_free)] for place in ties])
    free = [plain(tie.transpose() * field_matrix(part) * tie) for part in (dense.outer_product, dense.functional)]
    whole = plain(field_matrix(free[0]) + field_matrix(free[1]))
    return rank(free[0]), rank(free[1]), rank(whole), free[1]


@st.composite
def small_deep_convolutions(draw):
    length = draw(st.integers(2, 6))
    channels, kernels, strides, current = [draw(st.integers(1, 2))], [], [], length
    for _ in range(draw(st.integers(1, 2))):
        channels.append(draw(st.integers(1, 2)))
        kernels.append(draw(st.integers(1, current)))
        strides.append(draw(st.integers(1, 2)))
        current = (current - kernels[-1]) // strides[-1] + 1
    return length, tuple(channels), tuple(kernels), tuple(strides), draw(st.integers(1, 3))


@given(small_deep_convolutions(), st.integers(0, 2**32))
@share_of_examples(0.5)
def test_every_bound_holds_and_the_columns_add_up(case, seed):
    length, channels, kernels, strides, outputs = case
    sizes, parameters = deep_convolutional.convolutional_sizes(length, channels, kernels, outputs, strides)
    outer, functional, whole, matrix = tied_ranks(*case, seed)
    starts = [sum(parameters[:place]) for place in range(len(parameters) + 1)]
    columns = [rank(columns_of(matrix, *ends)) for ends in pairwise(starts)]
    bounds = deep_convolutional.functional_column_upper_bounds(sizes, parameters)
    assert outer <= deep_convolutional.outer_product_upper_bound(sizes, parameters)
    assert all(column <= bound for column, bound in zip(columns, bounds, strict=True))
    assert sum(columns) == functional
    if min(sizes) == min(sizes[0], outputs):
        assert functional <= deep_convolutional.hidden_units_upper_bound(sizes)
    assert whole <= deep_convolutional.loss_upper_bound(sizes, parameters)


def test_a_column_is_no_larger_than_all_the_other_layers_together():
    sizes, parameters = deep_convolutional.convolutional_sizes(9, (1, 2, 3), (4, 1), outputs=4)
    assert parameters == (8, 6, 72)
    assert deep_convolutional.functional_column_upper_bounds(sizes, parameters) == (8, 6, 14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: deep_convolutional.convolutional_sizes(9, (1, 2), (3, 3), 4),
            r"its channels; got 2 channels \(inputs' included\), 2 kernels, 2 strides",
        ),
        (
            lambda: deep_convolutional.convolutional_sizes(4, (1, 2, 2), (3, 3), 4),
            r"kernel must fit into its input; kernel is 3, input length 2",
        ),
        (
            lambda: deep_convolutional.hidden_units_upper_bound((2, 1, 2)),
            r"residual rank and bottleneck rank must be equal; they are 2 and 1\. Use functional_column_upper_bounds",
        ),
        (
            lambda: deep_convolutional.outer_product_upper_bound((3, 2, 1), (2,)),
            r"layer_parameters must contain one number per layer; got 1 for 2 layers",
        ),
    ],
)
def test_inconsistent_layers_are_refused(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()
