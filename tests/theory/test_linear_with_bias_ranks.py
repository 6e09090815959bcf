"""Deep linear networks with bias: every formula against the exact oracle, and the identities between them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exact_oracle import columns_of, generic_hessians, rank
from example_shares import share_of_examples
from hessmap.errors import InvalidInput
from hessmap.theory.fully_connected import linear
from rank_settings import architectures, settings_with_ranks


def num_parameters(widths):
    return sum((before + 1) * after for before, after in pairwise(widths))


@given(settings_with_ranks(bias=True))
@share_of_examples(4)
def test_all_three_ranks_equal_the_exact_ranks(setting):
    predicted = linear.hessian_ranks(
        setting.widths,
        setting.centred_input_rank,
        setting.residual_rank,
        biased_layers="all",
        mean_residual_is_zero=setting.mean_residual_is_zero,
        effective_output_dim=setting.effective_output_dim,
    )
    assert predicted == setting.hessians().ranks()


@pytest.mark.parametrize("widths", [(4, 2, 4, 4, 4), (4, 4, 2, 4, 4), (4, 4, 4, 2, 4), (4, 2, 4, 2, 5), (5, 2, 2, 4)])
def test_every_place_of_a_bottleneck_has_its_own_rank(widths):
    residual_rank = min(widths[0] + 1, widths[-1])
    predicted = linear.hessian_ranks(widths, widths[0], residual_rank, biased_layers="all")
    assert predicted == generic_hessians(widths, bias=True, residual_rank=residual_rank).ranks()


def test_the_same_bottleneck_earlier_leaves_more_rank():
    early, late = (linear.loss_rank(widths, 4, 4, biased_layers="all") for widths in [(4, 2, 4, 4, 4), (4, 4, 4, 2, 4)])
    assert (early, late) == (58, 50)


@given(settings_with_ranks(bias=True, generic_residual=True))
def test_kernel_splits_over_layers_with_the_predicted_dimensions(setting):
    found = setting.hessians()
    kernels = [end - start - rank(columns_of(found.loss, start, end)) for start, end in pairwise(found.layer_starts)]
    centred, outputs = setting.centred_input_rank, setting.effective_output_dim
    bounds = linear.loss_layer_upper_bounds(setting.widths, centred, biased_layers="all", effective_output_dim=outputs)
    sizes = [end - start for start, end in pairwise(found.layer_starts)]
    assert [size - left for size, left in zip(sizes, bounds, strict=True)] == kernels
    assert sum(kernels) == found.layer_starts[-1] - rank(found.loss)


@st.composite
def large_settings(draw):
    widths = draw(architectures(max_width=10**6, max_layers=12))
    centred = draw(st.integers(0, widths[0]))
    outputs = draw(st.integers(max(widths[-1] - 1, 0), widths[-1]))
    is_zero = draw(st.booleans())
    largest = linear.generic_residual_rank(centred, outputs, has_bias=True, mean_residual_is_zero=is_zero)
    residual = draw(st.one_of(st.just(largest), st.integers(0, largest)))
    return widths, centred, residual, {"mean_residual_is_zero": is_zero, "effective_output_dim": outputs}


@given(large_settings())
def test_overlap_is_what_the_two_parts_have_too_many(case):
    widths, centred, residual, options = case
    ranks = linear.hessian_ranks(widths, centred, residual, biased_layers="all", **options)
    q = min((residual, *widths[1:-1])) if len(widths) > 2 else 0
    overlap = 2 * q * residual - q**2 - (0 if options["mean_residual_is_zero"] else q)
    assert ranks.outer_product + ranks.functional - ranks.loss == overlap
    assert 0 <= overlap <= min(ranks.outer_product, ranks.functional)


@given(large_settings())
def test_ranks_lie_between_zero_and_the_number_of_parameters(case):
    widths, centred, residual, options = case
    ranks = linear.hessian_ranks(widths, centred, residual, biased_layers="all", **options)
    assert 0 <= ranks.outer_product <= ranks.loss <= num_parameters(widths)
    assert 0 <= ranks.functional <= num_parameters(widths)


@given(large_settings())
def test_a_generic_residual_leaves_the_explicit_kernel_alone(case):
    widths, centred, _, options = case
    outputs = options["effective_output_dim"]
    generic = linear.generic_residual_rank(centred, outputs, has_bias=True)
    found = linear.loss_rank(widths, centred, generic, biased_layers="all", effective_output_dim=outputs)
    assert found == linear.loss_upper_bound(widths, centred, biased_layers="all", effective_output_dim=outputs)


@given(large_settings())
def test_ranks_never_drop_when_the_inputs_gain_rank(case):
    widths, centred, residual, options = case
    before = linear.hessian_ranks(widths, centred, residual, biased_layers="all", **options)
    after = linear.hessian_ranks(widths, min(centred + 1, widths[0]), residual, biased_layers="all", **options)
    assert all(x <= y for x, y in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"residual_rank": 4}, r"residual_rank must be at most 3, the smaller of centred input rank \+ 1 and"),
        (
            {"residual_rank": 3, "mean_residual_is_zero": True},
            r"residual_rank must be at most 2, the smaller of centred input rank and effective output dimension; got 3",
        ),
    ],
)
def test_impossible_residual_ranks_are_refused(options, message):
    with pytest.raises(InvalidInput, match=message):
        linear.loss_rank((3, 4, 5), 2, biased_layers="all", **options)


def test_centred_rank_cannot_exceed_the_input_dimension():
    with pytest.raises(InvalidInput, match=r"input_rank must be at most 3, the input dimension; got 4"):
        linear.outer_product_rank((3, 4, 5), 4, biased_layers="all")
