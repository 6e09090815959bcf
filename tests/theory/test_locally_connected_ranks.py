"""Locally connected layers, with own and with shared filters: formulas against the exact oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patch_oracle import generic_ranks, locally_connected

from hessmap.errors import InvalidInput
from hessmap.theory.fully_connected import linear
from hessmap.theory.locally_connected import locally_connected_ranks, shared_weights_ranks

small = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))


def with_fewer_outputs(integers, loss):
    patches, patch_size, filters, outputs = integers
    return patches, patch_size, filters, outputs - (loss == "cross_entropy")


@given(small, st.sampled_from(["squared", "log_cosh"]), st.integers(0, 2**32))
def test_own_filters_have_the_exact_generic_ranks(integers, loss, seed):
    predicted = locally_connected_ranks(*with_fewer_outputs(integers, loss))
    assert predicted == generic_ranks(locally_connected(*integers, shared=False), seed, loss)


@given(small, st.sampled_from(["squared", "log_cosh"]), st.integers(0, 2**32))
def test_shared_filters_have_the_exact_generic_ranks(integers, loss, seed):
    predicted = shared_weights_ranks(*with_fewer_outputs(integers, loss))
    assert predicted == generic_ranks(locally_connected(*integers, shared=True), seed, loss)


@given(small.filter(lambda integers: integers[3] > 1), st.booleans(), st.integers(0, 2**32))
def test_cross_entropy_sees_one_output_less(integers, shared, seed):
    formula = shared_weights_ranks if shared else locally_connected_ranks
    predicted = formula(*with_fewer_outputs(integers, "cross_entropy"))
    assert predicted == generic_ranks(locally_connected(*integers, shared=shared), seed, "cross_entropy")


@given(small, st.data())
def test_low_residual_ranks_give_the_exact_ranks(integers, data):
    patches, patch_size, _, outputs = integers
    rank = data.draw(st.integers(0, min(patches * patch_size, outputs)))
    seed = data.draw(st.integers(0, 2**32))
    own = locally_connected_ranks(*integers, residual_ranks=[min(patch_size, rank)] * patches)
    assert own == generic_ranks(locally_connected(*integers, shared=False), seed, residual_rank=rank)
    shared = shared_weights_ranks(*integers, residual_rank=min(patch_size, rank * patches))
    assert shared == generic_ranks(locally_connected(*integers, shared=True), seed, residual_rank=rank)


def test_one_patch_is_a_fully_connected_network():
    dense = linear.hessian_ranks((5, 3, 4), 5, 4)
    assert locally_connected_ranks(1, 5, 3, 4) == shared_weights_ranks(1, 5, 3, 4) == dense


def test_every_patch_needs_its_residual_rank():
    with pytest.raises(InvalidInput, match=r"residual_ranks must contain one rank per patch; got 1 for 2 patches"):
        locally_connected_ranks(2, 3, 4, 5, residual_ranks=[1])
