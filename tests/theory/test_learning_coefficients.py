"""Learning coefficients of linear networks: the closed form against direct searches, exact ranks and known tables."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from learning_oracles import (
    by_chains,
    by_subsets,
    largest_component,
    least_chain_cost,
    rank_table,
    reduced_rank_regression,
    sums_of_intervals,
)

import hessmap as hm
from example_shares import share_of_examples
from golden_tables import each, table
from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap.records import LearningCoefficient, Record
from hessmap.theory.fully_connected import linear
from hessmap.theory.fully_connected.products import outer_product_rank
from hessmap.theory.learning import (
    largest_component_codimension,
    linear_learning_coefficient,
    local_learning_coefficient,
    two_layer_coefficient,
)

GOLDEN = table("learning-coefficients")
SETTINGS = st.lists(st.integers(1, 9), min_size=2, max_size=6).flatmap(
    lambda widths: st.tuples(st.just(tuple(widths)), st.integers(0, min(widths)))
)


@each(GOLDEN, lambda case: f"{'-'.join(map(str, case['widths']))}-rank-{case['rank']}")
def test_stored_cases(case):
    found = hm.learning_coefficient(hm.FullyConnected(case["widths"]), rank=case["rank"])
    assert (found.value, found.multiplicity) == (Fraction(case["lambda"]), case["multiplicity"])
    assert found.kind == "exact"


def test_2400_settings_drawn_after_the_formula_was_frozen_have_the_codimension_of_their_optima():
    draw = random.Random(20261116)
    for _ in range(2400):
        widths = tuple(draw.randint(1, draw.choice([3, 8, 25])) for _ in range(draw.randint(2, 7)))
        rank = draw.randint(0, min(widths))
        assert 2 * linear_learning_coefficient(widths, rank).value == least_chain_cost(widths, rank), (widths, rank)


def test_value_and_multiplicity_are_those_of_all_chains_and_of_the_published_subsets():
    small = [widths for depth in (2, 3, 4) for widths in product(range(1, 5), repeat=depth)]
    for widths in [*small, *product(range(1, 3), repeat=5), *product((1, 3), repeat=6)]:
        for rank in range(min(widths) + 1):
            found = linear_learning_coefficient(widths, rank)
            assert found == by_chains(widths, rank) == by_subsets(widths, rank), (widths, rank)


def test_two_layers_have_the_four_cases_of_reduced_rank_regression():
    for inputs, hidden, outputs in product(range(1, 9), repeat=3):
        for rank in range(min(inputs, hidden, outputs) + 1):
            found = linear_learning_coefficient((inputs, hidden, outputs), rank)
            assert found == reduced_rank_regression(inputs, hidden, outputs, rank)


@given(SETTINGS)
@share_of_examples(2)
def test_a_network_and_its_transpose_agree_and_neither_exceeds_half_the_parameters_or_the_generic_rank(setting):
    widths, rank = setting
    found = linear_learning_coefficient(widths, rank)
    assert found == linear_learning_coefficient(widths[::-1], rank)
    assert 2 * found.value <= linear.outer_product_rank(widths, widths[0]) <= sum(a * b for a, b in pairwise(widths))
    assert found.multiplicity >= 1
    assert (2 * found.value).denominator == 1


@given(SETTINGS, st.data())
@share_of_examples(2)
def test_it_never_falls_with_a_width_or_with_the_rank_of_the_truth(setting, data):
    widths, rank = setting
    value = linear_learning_coefficient(widths, rank).value
    place = data.draw(st.integers(0, len(widths) - 1))
    wider = tuple(width + (k == place) for k, width in enumerate(widths))
    assert linear_learning_coefficient(wider, rank).value >= value
    if rank:
        assert linear_learning_coefficient(widths, rank - 1).value <= value


@given(SETTINGS, st.integers(0, 5))
def test_a_layer_wider_than_all_the_others_together_has_no_influence(setting, place):
    widths, rank = setting
    wide = (*widths[:1], *widths[1:-1][:place], sum(widths) + 1, *widths[1:-1][place:], *widths[-1:])
    assert linear_learning_coefficient(wide, rank) == linear_learning_coefficient(widths, rank)


@pytest.mark.parametrize("widths", [(2, 3, 4), (1, 3, 3, 5), (2, 2, 4, 3)])
def test_a_truth_of_zero_sees_no_order_of_the_widths(widths):
    assert len({linear_learning_coefficient(order, 0) for order in permutations(widths)}) == 1


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6))
def test_a_truth_of_full_rank_has_half_the_generic_rank_of_the_outer_product_hessian(widths):
    found = hm.learning_coefficient(hm.FullyConnected(widths), rank=min(widths))
    rank = hm.predict_ranks(hm.FullyConnected(widths)).outer_product
    assert rank.kind == "exact"
    assert (2 * found.value, found.multiplicity, found.hessian_rank) == (rank.value, 1, rank.value)


@pytest.mark.parametrize("widths", [(3, 2), (2, 3, 2), (3, 3, 3), (2, 2, 2, 2), (1, 2, 3, 2), (1, 2, 1, 2, 2)])
def test_local_values_are_half_the_codimension_of_the_largest_component_of_all_orbits(widths):
    last = len(widths) - 1
    for intervals in sums_of_intervals(widths):
        table = rank_table(intervals, last)
        expected = largest_component(table, widths)
        point = local_learning_coefficient(table)
        assert 2 * point.value == largest_component_codimension(table) == expected
        assert outer_product_rank(table) == point.hessian_rank <= 2 * point.lower_bound <= expected
        assert point.is_smooth == (point.hessian_rank == expected)
        if point.is_smooth:
            assert point.multiplicity == 1


@pytest.mark.parametrize("widths", [(3, 4, 2), (3, 3, 3, 3), (2, 2, 2, 2, 2)])
def test_the_least_local_value_is_the_global_one_and_smooth_points_attain_it(widths):
    last = len(widths) - 1
    tables = [rank_table(intervals, last) for intervals in sums_of_intervals(widths)]
    for rank in range(min(widths) + 1):
        points = [local_learning_coefficient(table) for table in tables if table[last][0] == rank]
        least = linear_learning_coefficient(widths, rank).value
        assert min(point.value for point in points) == least
        assert min(point.value for point in points if point.is_smooth) == least


def test_where_all_products_have_the_rank_of_the_truth_the_local_value_is_the_global_one():
    for widths, rank in [((3, 3, 3), 1), ((4, 4, 4, 4), 2), ((10**9, 7 * 10**8, 10**9, 8 * 10**8), 10**6)]:
        table = [[*(rank for _ in range(j)), width] for j, width in enumerate(widths)]
        point = local_learning_coefficient(table)
        assert (point.value, point.multiplicity) == linear_learning_coefficient(widths, rank)


# rk H_o / 2 and lambda(w) of 5-5-5 at rank 2, for ranks (a, b) of the two weights; known by hand.
@pytest.mark.parametrize(
    ("ranks", "half_rank", "value"),
    [((5, 2), 12.5, 12.5), ((3, 3), 10.5, 11.5), ((3, 2), 9.5, 11.5), ((2, 2), 8, 11.5)],
)
def test_towards_singular_points_the_rank_falls_and_the_coefficient_does_not(ranks, half_rank, value):
    first, second = ranks
    network = hm.FullyConnected((5, 5, 5))
    found = hm.learning_coefficient(network, product_ranks=[[5], [first, 5], [2, second, 5]])
    assert (found.hessian_rank / 2, float(found), found.kind) == (half_rank, value, "exact")


def test_a_singular_point_of_three_layers_is_a_conjecture_unless_a_bound_reaches_it():
    network = hm.FullyConnected((3, 1, 1, 3))
    found = hm.learning_coefficient(network, product_ranks=[[3], [0, 1], [0, 1, 1], [0, 0, 0, 3]])
    assert (found.value, found.kind, found.multiplicity) == (Fraction(3, 2), "conjecture", None)
    assert found.lower_bound < found.value
    scalar = hm.learning_coefficient(hm.FullyConnected((1,) * 4), product_ranks=[[1], [0, 1], [0, 0, 1], [0, 0, 1, 1]])
    assert (scalar.value, scalar.kind) == (Fraction(1, 2), "exact")


def test_two_layers_at_their_smooth_points_leave_nothing():
    assert two_layer_coefficient(((4,), (4, 4), (0, 0, 3))) == (Fraction(12, 2), 1)


def test_bias_softmax_and_deficient_inputs_are_other_widths():
    plain = linear_learning_coefficient
    network = hm.FullyConnected((4, 3, 5), bias=True)
    with_bias = hm.learning_coefficient(network, rank=1, centred_input_rank=3)
    assert with_bias.value == plain((3, 3, 5), 1).value + Fraction(5, 2)
    softmax = hm.learning_coefficient(network, rank=1, loss="cross_entropy")
    assert softmax.value == plain((4, 3, 4), 1).value + Fraction(4, 2)
    assert softmax.multiplicity == plain((4, 3, 4), 1).multiplicity
    deficient = hm.learning_coefficient(hm.FullyConnected((4, 3, 5)), rank=1, input_rank=2)
    assert deficient.value == plain((2, 3, 5), 1).value
    first = hm.learning_coefficient(hm.FullyConnected((4, 3, 5), bias=(True, False)), rank=1)
    assert first.value == plain((5, 3, 5), 1).value
    scalar = hm.learning_coefficient(hm.FullyConnected((1, 1, 1), bias=True), rank=0)
    assert (scalar.value, scalar.multiplicity) == (1, 2)
    blind = hm.learning_coefficient(hm.FullyConnected((4, 3, 1)), rank=0, loss="cross_entropy")
    assert (blind.value, blind.multiplicity) == (0, 1)


def test_local_values_with_bias_and_softmax_end_their_rows_with_what_is_seen():
    network = hm.FullyConnected((3, 3, 4), bias=(False, True))
    table = [[2], [0, 3], [0, 0, 3]]
    found = hm.learning_coefficient(network, loss="cross_entropy", centred_input_rank=2, product_ranks=table)
    assert found.value == linear_learning_coefficient((2, 3, 3), 0).value + Fraction(3, 2)
    assert found.hessian_rank == 3
    with pytest.raises(InvalidInput, match=r"must end its rows with the dimensions \(3, 3, 3\).*they are \(2, 3, 3\)"):
        hm.learning_coefficient(network, loss="cross_entropy", product_ranks=table)


def test_very_many_layers_and_widths_of_a_billion():
    deep = hm.learning_coefficient(hm.FullyConnected([7] * 200_001), rank=0)
    assert deep.value == Fraction(7 * 8, 4)
    assert deep.multiplicity == 7 * (200_000 - 7) + 1
    wide = hm.learning_coefficient(hm.FullyConnected([10**9] * 3), rank=0)
    assert wide.value == Fraction(3 * 10**18, 8)


@pytest.mark.parametrize("width", [10**6, 10**18])
def test_sixty_layers_at_their_most_singular_weights_have_the_global_value(width):
    network = hm.FullyConnected([width + 7 * vertex for vertex in range(61)])
    table = [[*(1000 for _ in range(vertex)), size] for vertex, size in enumerate(network.widths)]
    at_weights, whole = hm.learning_coefficient(network, product_ranks=table), hm.learning_coefficient(network, 1000)
    assert (at_weights.value, at_weights.multiplicity, at_weights.kind) == (whole.value, whole.multiplicity, "exact")


def test_it_is_kept_as_json_exactly():
    found = hm.learning_coefficient(hm.FullyConnected((3, 3, 3)), rank=0)
    assert found.to_dict()["value"] == {"fraction": "7/2"}
    read = Record.from_json(found.to_json())
    assert isinstance(read, LearningCoefficient)
    assert read == found
    assert read.value == Fraction(7, 2)
    assert "7/2" in repr(found)


@pytest.mark.parametrize(
    ("arguments", "kind", "match"),
    [
        ({"network": hm.FullyConnected((3, 2))}, InvalidInput, r"rank is missing. Give rank=0\.\.2"),
        (
            {"network": hm.FullyConnected((3, 2)), "rank": 3},
            InvalidInput,
            "rank must be at most 2, the narrowest width",
        ),
        ({"network": hm.FullyConnected((3, 2)), "rank": -1}, InvalidInput, "rank must be at least 0; got -1"),
        ({"network": hm.FullyConnected((3, 2)), "rank": 1.0}, InvalidInput, "rank must be an integer; got 1.0"),
        ({"network": hm.FullyConnected((3, 2)), "rank": 1, "input_rank": 4}, InvalidInput, "must be at most 3"),
        ({"network": hm.FullyConnected((3, 2)), "rank": 1, "loss": "mse"}, InvalidInput, "loss must be one of squared"),
        ({"network": (3, 2), "rank": 1}, UnsupportedNetwork, "needs a FullyConnected architecture; got a tuple"),
        (
            {"network": hm.FullyConnected((3, 2, 2), activation="relu"), "rank": 1},
            UnsupportedNetwork,
            "need a linear network; this one has activation relu. Use learning_coefficient_estimate",
        ),
        (
            {"network": hm.FullyConnected((3, 2, 2, 2), bias=(False, True, False)), "rank": 1},
            UnsupportedNetwork,
            "with a bias in the last layer, or in the first alone",
        ),
        (
            {"network": hm.FullyConnected((3, 2, 2)), "rank": 2, "product_ranks": [[3], [1, 2], [1, 2, 2]]},
            InvalidInput,
            "rank is 2, the entry 1",
        ),
    ],
)
def test_what_cannot_be_answered_is_said(arguments, kind, match):
    with pytest.raises(kind, match=match):
        hm.learning_coefficient(**arguments)
