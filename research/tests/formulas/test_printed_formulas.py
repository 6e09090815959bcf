"""The printed formulas: right where they are said to be, wrong where exact arithmetic says so."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exact_oracle import generic_hessians, rank
from hessmap.errors import InvalidInput
from hessmap.theory.fully_connected import linear
from hessmap_research.formulas import printed_fully_connected as printed_formulas
from hessmap_research.formulas.printed_convolutional import theorem_6
from rank_settings import architectures


@st.composite
def full_rank_settings(draw):
    widths = draw(architectures(max_width=50, max_layers=6))
    return widths, draw(st.integers(0, widths[0]))


@given(full_rank_settings())
def test_fact_7_is_right_for_a_generic_residual(case):
    widths, input_rank = case
    generic = linear.generic_residual_rank(input_rank, widths[-1])
    assert printed_formulas.fact_7(widths, input_rank) == linear.loss_rank(widths, input_rank, generic)


@given(full_rank_settings())
def test_fact_13_and_section_s7_3_are_right_without_bottleneck(case):
    widths, input_rank = case
    generic = min(input_rank + 1, widths[-1])
    wide = (widths[0], *(width + generic for width in widths[1:-1]), widths[-1])
    assert printed_formulas.fact_13(wide, input_rank) == linear.loss_rank(
        wide, input_rank, generic, biased_layers="all"
    )
    if len(wide) > 2:
        functional = linear.functional_rank(wide, input_rank, generic, biased_layers="all")
        assert printed_formulas.section_s7_3_functional_rank(wide, input_rank) == functional


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 50), st.data())
def test_section_s7_2_is_right_with_and_without_bottleneck(inputs, hidden, outputs, data):
    widths, input_rank = (inputs, hidden, outputs), data.draw(st.integers(0, inputs))
    generic = min(input_rank + 1, outputs)
    loss = linear.loss_rank(widths, input_rank, generic, biased_layers="all")
    functional = linear.functional_rank(widths, input_rank, generic, biased_layers="all")
    assert printed_formulas.section_s7_2_loss_rank(widths, input_rank) == loss
    assert printed_formulas.section_s7_2_functional_rank(widths, input_rank) == functional


def test_fact_7_fails_for_a_residual_of_low_rank():
    assert rank(generic_hessians((6, 5, 4), residual_rank=1).loss) == 33
    assert printed_formulas.fact_7((6, 5, 4), 6) == 48
    assert printed_formulas.fact_7((6, 5, 4), 6, 1) == 18


def test_fact_13_and_section_s7_3_fail_with_a_bottleneck():
    assert rank(generic_hessians((5, 1, 3), bias=True).loss) == 12
    assert printed_formulas.fact_13((5, 1, 3), 5) == 10
    assert rank(generic_hessians((2, 1, 3, 3), bias=True).functional) == 16
    assert printed_formulas.section_s7_3_functional_rank((2, 1, 3, 3), 2) == 12


def test_theorem_12_and_section_s7_2_fail_for_inputs_on_a_hyperplane_that_misses_the_origin():
    found = generic_hessians((3, 4, 2), bias=True, input_rank=2, centred_input_rank=1, num_samples=2)
    assert found.ranks() == (4, 16, 18)
    assert printed_formulas.theorem_12((3, 4, 2), 2) == 6
    assert printed_formulas.section_s7_2_loss_rank((3, 4, 2), 2) == 20
    constant = generic_hessians((2, 3, 2), bias=True, input_rank=1, centred_input_rank=0)
    assert rank(constant.functional) == 6
    assert printed_formulas.section_s7_2_functional_rank((2, 3, 2), 1) == 12


def test_section_s7_2_refuses_deeper_networks():
    with pytest.raises(InvalidInput, match=r"one hidden layer; widths are \(3, 4, 4, 2\)\. Use fact_13"):
        printed_formulas.section_s7_2_loss_rank((3, 4, 4, 2), 3)


@pytest.mark.parametrize("widths", [(3, 4, 2), (4, 2, 5, 3), (2, 5, 5, 3)], ids=str)
def test_theorem_6_of_dense_layers_is_the_least_of_columns_and_parameters(widths: tuple[int, ...]) -> None:
    """Written out: q M_{l-1} + q M_l - q^2 between, s for the ends, none above the parameters of its layer."""
    s = min(widths[0], widths[-1])
    q = min(s, *widths[1:-1])
    ends = (s, *widths[1:-1], s)
    parameters = [before * after for before, after in pairwise(widths)]
    columns = [q * before + q * after - q * q for before, after in pairwise(ends)]
    assert theorem_6(widths, parameters) == sum(map(min, columns, parameters))
