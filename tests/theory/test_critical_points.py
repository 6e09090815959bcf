"""Critical points that a bottleneck forces, built exactly: zero gradient, residual not zero."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exact_oracle import (
    columns_of,
    field_matrix,
    hessians,
    plain,
    product,
    random_matrix,
    random_network,
    rank,
    transpose,
)
from hessmap.errors import InvalidInput
from hessmap.theory.fully_connected import linear


def kernel_basis(matrix):
    """Columns that span the kernel."""
    basis, nullity = field_matrix(matrix).nullspace()
    return columns_of(plain(basis), 0, int(nullity))


def residual_moment(draw, layers, residual_rank):
    """A matrix of the given rank that the end-to-end map's own directions annihilate on both sides."""
    behind_first = before_last = None
    for layer in reversed(layers[1:]):
        behind_first = layer if behind_first is None else product(behind_first, layer)
    for layer in layers[:-1]:
        before_last = layer if before_last is None else product(layer, before_last)
    left, right = kernel_basis(transpose(behind_first)), kernel_basis(before_last)
    left = product(left, random_matrix(draw, len(left[0]), residual_rank))
    return product(left, product(random_matrix(draw, residual_rank, len(right[0])), transpose(right)))


@st.composite
def bottlenecks(draw):
    narrow = draw(st.integers(1, 2))
    hidden = draw(st.lists(st.integers(narrow, 4), max_size=2))
    hidden.insert(draw(st.integers(0, len(hidden))), narrow)
    ends = st.integers(narrow + 1, narrow + 3)
    widths = (draw(ends), *hidden, draw(ends))
    return widths, draw(st.integers(1, min(widths[0], widths[-1]) - narrow)), draw(st.integers(0, 2**32))


@given(bottlenecks())
def test_ranks_equal_the_exact_ranks_where_the_gradient_is_exactly_zero(case):
    widths, residual_rank, seed = case
    draw = random.Random(seed)
    layers = random_network(draw, widths, False)
    inputs = random_matrix(draw, widths[0], widths[0])
    moment = residual_moment(draw, layers, residual_rank)
    # residuals^T inputs = moment, with as many samples as input dimensions
    residuals = plain(field_matrix(inputs).transpose().inv() * field_matrix(transpose(moment)))
    assert rank(moment) == residual_rank
    identity = [[int(i == j) for j in range(widths[-1])] for i in range(widths[-1])]
    found = hessians(layers, inputs, residuals, [identity] * len(inputs))
    gradient = product([[entry for row in residuals for entry in row]], [row for j in found.jacobians for row in j])
    assert gradient == [[0] * found.layer_starts[-1]]
    predicted = linear.bottleneck_critical_point_ranks(widths, widths[0], residual_rank)
    assert predicted == found.ranks()


@pytest.mark.parametrize(
    ("widths", "input_rank", "residual_rank", "message"),
    [
        ((3, 4), 3, 1, r"narrower than input rank and outputs; widths \(3, 4\) have no hidden layer"),
        ((3, 3, 5), 3, 1, r"the narrowest hidden layer has 3 units, the target map has rank 3"),
        ((3, 1, 5), 3, 3, r"residual_rank must be at most 2, the rank that the bottleneck leaves unfitted; got 3"),
        ((3, 1, 5), 3, 0, r"residual_rank must be at least 1; got 0\. Use linear\.loss_rank"),
    ],
)
def test_settings_without_such_a_critical_point_are_refused(widths, input_rank, residual_rank, message):
    with pytest.raises(InvalidInput, match=message):
        linear.bottleneck_critical_point_ranks(widths, input_rank, residual_rank)
