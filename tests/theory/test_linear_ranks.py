"""Deep linear networks without bias: every formula against the exact oracle, and the identities between them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exact_oracle import columns_of, rank
from example_shares import share_of_examples
from hessmap.errors import InvalidInput
from hessmap.theory.fully_connected import linear
from rank_settings import architectures, settings_with_ranks


def num_parameters(widths):
    return sum(before * after for before, after in pairwise(widths))


@given(settings_with_ranks(bias=False))
@share_of_examples(4)
def test_all_three_ranks_equal_the_exact_ranks(setting):
    predicted = linear.hessian_ranks(
        setting.widths,
        setting.input_rank,
        setting.residual_rank,
        effective_output_dim=setting.effective_output_dim,
    )
    assert predicted == setting.hessians().ranks()


@given(settings_with_ranks(bias=False))
def test_block_columns_of_the_functional_hessian_have_the_predicted_ranks_and_add_up(setting):
    found = setting.hessians()
    columns = [rank(columns_of(found.functional, *ends)) for ends in pairwise(found.layer_starts)]
    predicted = linear.functional_column_ranks(
        setting.widths,
        setting.input_rank,
        setting.residual_rank,
        effective_output_dim=setting.effective_output_dim,
    )
    assert list(predicted) == columns
    assert sum(columns) == rank(found.functional)


@given(settings_with_ranks(bias=False, generic_residual=True))
def test_kernel_splits_over_layers_with_the_predicted_dimensions(setting):
    found = setting.hessians()
    kernels = [end - start - rank(columns_of(found.loss, start, end)) for start, end in pairwise(found.layer_starts)]
    bounds = linear.loss_layer_upper_bounds(
        setting.widths, setting.input_rank, effective_output_dim=setting.effective_output_dim
    )
    sizes = [end - start for start, end in pairwise(found.layer_starts)]
    assert [size - left for size, left in zip(sizes, bounds, strict=True)] == kernels
    assert sum(kernels) == found.layer_starts[-1] - rank(found.loss)


@st.composite
def large_settings(draw):
    widths = draw(architectures(max_width=10**6, max_layers=12))
    input_rank = draw(st.integers(0, widths[0]))
    outputs = draw(st.integers(max(widths[-1] - 1, 0), widths[-1]))
    return widths, input_rank, draw(st.integers(0, min(input_rank, outputs))), outputs


@given(large_settings())
def test_overlap_is_what_the_two_parts_have_too_many(case):
    widths, input_rank, residual_rank, outputs = case
    ranks = linear.hessian_ranks(widths, input_rank, residual_rank, effective_output_dim=outputs)
    q = min(linear.active_bottleneck_rank(widths, residual_rank), residual_rank) if len(widths) > 2 else 0
    overlap = 2 * q * residual_rank - q**2
    assert ranks.outer_product + ranks.functional - ranks.loss == overlap
    assert 0 <= overlap <= min(ranks.outer_product, ranks.functional)


@given(large_settings())
def test_ranks_lie_between_zero_and_the_number_of_parameters(case):
    widths, input_rank, residual_rank, outputs = case
    ranks = linear.hessian_ranks(widths, input_rank, residual_rank, effective_output_dim=outputs)
    assert 0 <= ranks.outer_product <= ranks.loss <= num_parameters(widths)
    assert 0 <= ranks.functional <= num_parameters(widths)


@given(large_settings())
def test_a_generic_residual_leaves_the_explicit_kernel_alone(case):
    widths, input_rank, _, outputs = case
    generic = linear.generic_residual_rank(input_rank, outputs)
    rank_found = linear.loss_rank(widths, input_rank, generic, effective_output_dim=outputs)
    assert rank_found == linear.loss_upper_bound(widths, input_rank, effective_output_dim=outputs)


@given(large_settings())
def test_ranks_never_drop_when_the_inputs_gain_rank(case):
    widths, input_rank, residual_rank, outputs = case
    more = min(input_rank + 1, widths[0])
    before = linear.hessian_ranks(widths, input_rank, residual_rank, effective_output_dim=outputs)
    after = linear.hessian_ranks(widths, more, residual_rank, effective_output_dim=outputs)
    assert all(x <= y for x, y in zip(before, after, strict=True))


@given(large_settings())
def test_without_residual_the_loss_hessian_is_the_outer_product_hessian(case):
    widths, input_rank, _, outputs = case
    ranks = linear.hessian_ranks(widths, input_rank, 0, effective_output_dim=outputs)
    assert ranks.functional == 0
    assert ranks.loss == ranks.outer_product


@given(large_settings())
def test_column_ranks_sum_to_the_functional_rank(case):
    widths, input_rank, residual_rank, outputs = case
    columns = linear.functional_column_ranks(widths, input_rank, residual_rank, effective_output_dim=outputs)
    whole = linear.functional_rank(widths, input_rank, residual_rank, effective_output_dim=outputs)
    assert sum(columns) == whole
    assert len(columns) == len(widths) - 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linear.outer_product_rank((3, 0, 2), 3), r"at least 1.*; widths\[1\] is 0\."),
        (lambda: linear.outer_product_rank((3,), 3), r"must contain an input and an output; got \(3,\)"),
        (lambda: linear.outer_product_rank((3.5, 2), 3), r"must be integers of at least 1.*; got \(3\.5, 2\)"),
        (lambda: linear.outer_product_rank((3, 2), 4), r"input_rank must be at most 3, the input dimension; got 4"),
        (lambda: linear.outer_product_rank((3, 2), -1), r"input_rank must be at least 0; got -1"),
        (lambda: linear.outer_product_rank((3, 2), 1.5), r"input_rank must be an integer; got 1\.5"),
        (lambda: linear.loss_rank((3, 2), 3, 3), r"residual_rank must be at most 2, the smaller of .*; got 3"),
        (
            lambda: linear.outer_product_rank((3, 2), 3, effective_output_dim=3),
            r"effective_output_dim must be at most 2, the output dimension; got 3",
        ),
    ],
)
def test_impossible_integers_are_refused_by_name(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()
