"""One convolution and one dense layer: every formula against the exact oracle."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from patch_oracle import convolution, generic_ranks

from hessmap.errors import InvalidInput
from hessmap.theory.convolutional import one_layer as convolutional
from hessmap.theory.convolutional.one_layer import OneHiddenConvolution


def plus(value):
    return max(value, 0)


def balanced(total, parts):
    return [(total + place) // parts for place in range(parts)]


def stride_one_ranks(d0, k, m, K):
    """The closed forms for stride 1 and one channel, derived apart from the general ones."""
    d1 = d0 - k + 1
    functional = 2 * m * min(k, K * d1)
    if m * d1 >= d0 or m >= k:
        outer = K * d0
    elif m == 1:
        outer = K * d1 + k - 1
    else:
        outer = K * m * d1 + sum(min(K * plus(b - d0), m * plus(b - k)) for b in balanced(m * (k - 1), m - 1))
    if k <= K * d1:
        added = sum(min(min(m, k) * plus(d1 - e), plus(d0 - e)) for e in balanced(d0 + 1, K + 1))
    else:
        added = sum(min(min(m, K * d1) * plus(k - e), K * plus(d0 - e)) for e in balanced(K * (d0 + 1), K + 1))
    return outer, functional, functional + added


@st.composite
def small_convolutions(draw):
    """The integers of a convolution of at most 90 parameters, in the order of the oracle, and a loss."""
    length = draw(st.integers(1, 8))
    kernel, filters, outputs = draw(st.integers(1, length)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    channels, stride = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    integers = (length, kernel, filters, outputs, channels, stride)
    assume(OneHiddenConvolution(*integers).num_parameters <= 90)
    return integers, draw(st.sampled_from(["squared", "log_cosh", "cross_entropy"]))


def effective(integers, loss):
    length, kernel, filters, outputs, channels, stride = integers
    return OneHiddenConvolution(length, kernel, filters, outputs - (loss == "cross_entropy"), channels, stride)


@given(small_convolutions(), st.integers(0, 2**32))
def test_all_three_ranks_equal_the_exact_ranks(case, seed):
    integers, loss = case
    net = effective(integers, loss)
    outer, functional = convolutional.outer_product_rank(net), convolutional.functional_rank(net)
    assert (outer, functional, convolutional.loss_rank(net)) == generic_ranks(convolution(*integers), seed, loss)


@pytest.mark.parametrize(
    "integers",
    [
        (9, 5, 5, 3, 2, 4),
        (9, 8, 3, 5, 1, 1),
        (7, 6, 3, 9, 1, 1),
        (8, 6, 3, 5, 2, 2),
        (7, 7, 2, 3, 1, 2),
        (6, 5, 4, 2, 2, 2),
    ],
)
def test_fewer_as_many_and_more_filters_than_phases_have_the_exact_ranks(integers):
    net = OneHiddenConvolution(*integers)
    outer, functional = convolutional.outer_product_rank(net), convolutional.functional_rank(net)
    assert (outer, functional, convolutional.loss_rank(net)) == generic_ranks(convolution(*integers), seed=1)


def test_the_bound_for_inputs_of_low_rank_is_no_equality():
    integers, input_rank = (11, 10, 3, 5, 1, 1), 10
    exact, _, _ = generic_ranks(convolution(*integers), seed=1, input_rank=input_rank, residual_rank=0)
    assert exact == 49
    assert convolutional.outer_product_upper_bound(OneHiddenConvolution(*integers), input_rank) == 50


@given(small_convolutions(), st.data())
def test_low_ranks_of_inputs_and_residual_obey_the_bounds_and_leave_the_functional_rank_exact(case, data):
    integers, loss = case
    net = effective(integers, loss)
    input_rank = data.draw(st.integers(0, net.num_inputs))
    residual_rank = data.draw(st.integers(0, min(input_rank, net.outputs)))
    seed = data.draw(st.integers(0, 2**32))
    outer, functional, whole = generic_ranks(convolution(*integers), seed, loss, input_rank, residual_rank)
    assert outer <= convolutional.outer_product_upper_bound(net, input_rank)
    assert convolutional.functional_rank(net, residual_rank) == functional
    assert whole <= convolutional.loss_rank(net)


@given(small_convolutions(), st.data())
def test_residuals_of_low_rank_have_the_exact_loss_rank_where_it_is_known(case, data):
    integers, loss = case
    net = effective(integers, loss)
    most = min(net.num_visible_inputs, net.outputs)
    known = [rank for rank in range(most + 1) if convolutional.has_loss_rank(net, rank)]
    assume(known)
    residual_rank = data.draw(st.sampled_from(known))
    seed = data.draw(st.integers(0, 2**32))
    exact = generic_ranks(convolution(*integers), seed, loss, net.num_inputs, residual_rank)
    assert convolutional.loss_rank(net, residual_rank) == exact[2]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 12))
def test_general_formulas_reduce_to_those_of_stride_one(d0, k, m, K):
    assume(k <= d0)
    net = OneHiddenConvolution(d0, k, m, K)
    outer, functional = convolutional.outer_product_rank(net), convolutional.functional_rank(net)
    assert (outer, functional, convolutional.loss_rank(net)) == stride_one_ranks(d0, k, m, K)


@given(small_convolutions())
def test_ranks_lie_between_zero_and_the_number_of_parameters(case):
    net = OneHiddenConvolution(*case[0])
    outer, whole = convolutional.outer_product_rank(net), convolutional.loss_rank(net)
    assert 0 <= outer <= whole <= net.num_parameters


def test_numbers_of_a_million_are_instant_and_exact():
    net = OneHiddenConvolution(10**6, kernel=10**5, filters=10**6, outputs=10**3, stride=7)
    assert convolutional.functional_rank(net) == 2 * 10**6 * 10**5
    assert convolutional.loss_rank(net) >= convolutional.outer_product_rank(net) > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: OneHiddenConvolution(3, 4, 1, 1), r"kernel must fit into its input; kernel is 4, input_length 3"),
        (lambda: OneHiddenConvolution(3, 2, 0, 1), r"filters must be at least 1; got 0"),
        (
            lambda: convolutional.outer_product_upper_bound(OneHiddenConvolution(3, 2, 1, 1), 4),
            r"input_rank must be at most 3, the number of inputs; got 4",
        ),
        (
            lambda: convolutional.functional_rank(OneHiddenConvolution(3, 2, 1, 1), 2),
            r"residual_rank must be at most 1, the smaller of inputs and outputs; got 2",
        ),
        (
            lambda: convolutional.loss_rank(OneHiddenConvolution(9, 8, 3, 5), 2),
            r"residual sees all outputs, all taps, .*; residual_rank is 2 of 5, with 8 taps and 2 positions\. Use",
        ),
    ],
)
def test_impossible_integers_are_refused_by_name(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()
