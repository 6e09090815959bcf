"""ReLU networks on their exact activation patterns: bounds that hold, and one rank that is exact."""

import random
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exact_oracle import hessians, random_matrix, rank, trace
from golden_cases import golden, stored_ranks
from golden_tables import each
from hessmap.errors import InvalidInput
from hessmap.theory.data_ranks import outer_product_sample_upper_bound
from hessmap.theory.fully_connected import activations, linear


def hidden_patterns(layers, inputs):
    """For each unit of the first hidden layer, the samples on which it is active."""
    slopes = [trace(layers, sample, relu=True).slopes[0] for sample in inputs]
    return [tuple(row[unit] for row in slopes) for unit in range(len(layers[0]))]


def active_rank(inputs, pattern, bias=0):
    return rank([[*sample, *([1] * bias)] for sample, is_active in zip(inputs, pattern, strict=True) if is_active])


def groups_of(layers, inputs):
    members = defaultdict(int)
    for pattern in hidden_patterns(layers, inputs):
        members[pattern] += 1
    return [(count, active_rank(inputs, pattern)) for pattern, count in members.items()]


def relu_hessians(layers, inputs, seed):
    outputs = len(layers[-1])
    identity = [[int(i == j) for j in range(outputs)] for i in range(outputs)]
    residuals = random_matrix(random.Random(seed), len(inputs), outputs)
    return hessians(layers, inputs, residuals, [identity] * len(inputs), relu=True)


@st.composite
def small_integer_networks(draw, num_hidden, bias=False):
    hidden = [draw(st.integers(1, 4)) for _ in range(num_hidden)]
    widths = (draw(st.integers(1, 3)), *hidden, draw(st.integers(1, 3)))
    layers = [
        [[draw(st.integers(-9, 9).filter(bool)) for _ in range(before + bias)] for _ in range(after)]
        for before, after in pairwise(widths)
    ]
    samples = st.lists(st.integers(-9, 9), min_size=widths[0], max_size=widths[0])
    return widths, layers, draw(st.lists(samples, min_size=1, max_size=8)), draw(st.integers(0, 2**32))


@given(small_integer_networks(num_hidden=1))
def test_one_hidden_layer_bounds_hold_and_sharpen(case):
    widths, layers, inputs, seed = case
    found = relu_hessians(layers, inputs, seed)
    outer = rank(found.outer_product)
    patterns = hidden_patterns(layers, inputs)
    active = sum(any(pattern) for pattern in patterns)
    by_groups = activations.activation_groups_upper_bound(groups_of(layers, inputs), len(inputs), widths[-1])
    by_units = activations.active_units_upper_bound(active, rank(inputs), widths[-1]) if active else 0
    assert outer <= by_groups <= by_units
    assert outer <= outer_product_sample_upper_bound(len(inputs), widths[-1])


@pytest.mark.parametrize("bias", [False, True])
@given(data=st.data())
def test_functional_rank_of_one_hidden_layer_is_exact(bias, data):
    widths, layers, inputs, seed = data.draw(small_integer_networks(num_hidden=1, bias=bias))
    unit_ranks = [active_rank(inputs, pattern, bias) for pattern in hidden_patterns(layers, inputs)]
    predicted = activations.one_hidden_functional_rank(unit_ranks, widths[-1])
    assert predicted == rank(relu_hessians(layers, inputs, seed).functional)


@pytest.mark.parametrize("bias", [False, True])
@given(data=st.data())
def test_symmetry_bounds_hold_at_any_depth(bias, data):
    num_hidden = data.draw(st.integers(1, 3))
    widths, layers, inputs, seed = data.draw(small_integer_networks(num_hidden=num_hidden, bias=bias))
    outer, functional, loss = relu_hessians(layers, inputs, seed).ranks()
    visible = rank([[*sample, *([1] * bias)] for sample in inputs]) - bias
    biases = (bias,) * (num_hidden + 1)
    reachable = activations.reachable_parameters_upper_bound(widths, visible, biases)
    assert outer <= activations.rescaling_upper_bound(widths, visible, biases)
    assert functional <= reachable
    assert loss <= reachable


@each(golden("relu"))
def test_stored_relu_ranks_obey_the_bounds(case):
    widths, layers, inputs = case["dims"], case["W"], [list(column) for column in zip(*case["X"], strict=True)]
    outer, functional, loss = stored_ranks(case, "true")
    assert outer <= activations.rescaling_upper_bound(widths, case["r"])
    assert max(functional, loss) <= activations.reachable_parameters_upper_bound(widths, case["r"])
    if len(widths) > 3:
        assert activations.rescaling_upper_bound(widths, case["r"]) == case["paper"]["Ho_bound"]
        return
    active = widths[1] - case["dead"]
    printed = activations.active_units_upper_bound(active, case["r"], widths[-1])
    assert printed == case["paper"]["Ho_bound"]
    groups = groups_of(layers, inputs)
    assert outer <= activations.activation_groups_upper_bound(groups, case["N"], widths[-1]) <= printed
    assert activations.one_hidden_functional_rank(case["r_i"], widths[-1]) == functional
    assert [active_rank(inputs, pattern) for pattern in hidden_patterns(layers, inputs)] == case["r_i"]


def test_linear_formulas_are_no_upper_bounds_for_relu():
    draw = random.Random(3)
    layers = [[[draw.randint(-9, 9) for _ in range(4)] for _ in range(5)], [[1, 2, 3, 4, 5], [5, -4, 3, -2, 1]]]
    inputs = [[draw.randint(-9, 9) for _ in range(4)] for _ in range(40)]
    outer, _, loss = relu_hessians(layers, inputs, seed=0).ranks()
    assert linear.hessian_ranks((4, 5, 2), 4, 2) == (8, 20, 24)
    assert (outer, loss) == (25, 30)


def test_one_hidden_layer_of_live_units_gives_both_bounds_the_same_value():
    for widths, input_rank in [((4, 5, 2), 4), ((6, 3, 7), 2)]:
        by_units = activations.active_units_upper_bound(widths[1], input_rank, widths[-1])
        assert activations.rescaling_upper_bound(widths, input_rank) == by_units


def test_an_active_unit_without_inputs_is_refused():
    with pytest.raises(InvalidInput, match=r"an active unit needs inputs of rank at least 1; got input_rank 0"):
        activations.active_units_upper_bound(1, 0, 3)
