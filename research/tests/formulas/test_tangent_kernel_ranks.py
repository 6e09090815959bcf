"""Ranks of the neural tangent kernel against kernels formed in exact arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exact_oracle import product, rank, transpose
from hessmap_research.formulas import tangent_kernel
from rank_settings import settings_with_ranks


def kernels(found):
    """The full kernel, the trace kernel and the kernel of the first output."""
    jacobians = found.jacobians
    full = [row for slope in jacobians for row in slope]
    single = [slope[0] for slope in jacobians]
    traced = [[entry for row in slope for entry in row] for slope in jacobians]
    return [product(rows, transpose(rows)) for rows in (full, traced, single)]


@pytest.mark.parametrize("bias", [False, True])
@given(data=st.data())
def test_kernels_have_the_predicted_ranks_whatever_the_loss(bias, data):
    setting = data.draw(settings_with_ranks(bias=bias))
    full, traced, single = map(rank, kernels(setting.hessians()))
    if bias:
        rank_of_data = setting.centred_input_rank
        assert full == tangent_kernel.tangent_kernel_rank_with_bias(setting.widths, rank_of_data)
        assert traced == single == tangent_kernel.scalar_tangent_kernel_rank_with_bias(rank_of_data)
    else:
        rank_of_data = setting.input_rank
        assert full == tangent_kernel.tangent_kernel_rank(setting.widths, rank_of_data)
        assert traced == single == tangent_kernel.scalar_tangent_kernel_rank(rank_of_data)
