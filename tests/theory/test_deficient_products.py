"""Linear networks whose products of weights lose rank: the formulas against an exact oracle and against `linear`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from itertools import product as product_of

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polarised_oracle import Data, ranks

from exact_oracle import Matrix, product, random_matrix, rank
from example_shares import share_of_examples
from hessmap.errors import InvalidInput
from hessmap.theory.fully_connected import linear
from hessmap.theory.fully_connected.products import (
    String,
    functional_rank,
    interval_counts,
    interval_rank,
    loss_rank,
    nested_sum_dimension,
    outer_product_rank,
    pairing_rank,
)

Interval = tuple[int, int]

# The weights that meet the paper's assumption A1 while their products lose rank.
A1_IS_NOT_ENOUGH: list[Matrix] = [
    [[1, 0], [0, 1], [0, 0]],
    [[1, 0, 0], [0, 0, 1]],
    [[1, 0], [0, 0], [0, 1]],
    [[1, 0, 0], [0, 1, 0]],
]


def product_ranks(weights: list[Matrix]) -> list[list[int]]:
    widths = [len(weights[0][0]), *map(len, weights)]
    table = []
    for stop in range(len(widths)):
        row = []
        for start in range(stop):
            current = weights[start]
            for matrix in weights[start + 1 : stop]:
                current = product(matrix, current)
            row.append(rank(current))
        table.append([*row, widths[stop]])
    return table


def exact_ranks(weights: list[Matrix], moment: Matrix) -> tuple[int, int, int]:
    size = len(weights[0][0])
    identity = [[int(i == j) for j in range(size)] for i in range(size)]
    return ranks(weights, {}, Data(identity, [0] * size, moment))


def predicted_ranks(table: list[list[int]], residual_rank: int) -> tuple[int, int, int]:
    return outer_product_rank(table), functional_rank(table, residual_rank), loss_rank(table, residual_rank)


@st.composite
def networks(draw: st.DrawFn) -> list[Matrix]:
    """A direct sum of random intervals, its structure hidden by a random change of basis at every vertex."""
    num_layers = draw(st.integers(1, 4))
    vertices = st.integers(0, num_layers)
    drawn = draw(st.lists(st.tuples(vertices, vertices).map(sorted), min_size=2, max_size=4 + num_layers))
    anchor = [[vertex, vertex] for vertex in range(num_layers + 1)]
    intervals = [*drawn, *(pair for pair in anchor if not any(a <= pair[0] <= b for a, b in drawn))]
    return _hidden(sum_of_intervals(num_layers, intervals), random.Random(draw(st.integers(0, 2**32))))


def sum_of_intervals(num_layers: int, intervals: Sequence[Sequence[int]]) -> list[Matrix]:
    at = [[n for n, (a, b) in enumerate(intervals) if a <= vertex <= b] for vertex in range(num_layers + 1)]
    return [[[int(n == m) for m in before] for n in after] for before, after in pairwise(at)]


def _hidden(weights: list[Matrix], randomness: random.Random) -> list[Matrix]:
    """A random change of basis at every hidden vertex, by a shear with a known inverse."""
    changed = [[list(row) for row in matrix] for matrix in weights]
    for place in range(len(weights) - 1):
        size = len(changed[place])
        for _ in range(2 * size):
            i, j, factor = randomness.randrange(size), randomness.randrange(size), randomness.randrange(1, 10)
            if i != j:
                changed[place][i] = [a + factor * b for a, b in zip(changed[place][i], changed[place][j], strict=True)]
                for row in changed[place + 1]:
                    row[j] -= factor * row[i]
    return changed


@given(networks(), st.data())
def test_the_three_ranks_of_any_weights_follow_from_the_ranks_of_their_products(
    weights: list[Matrix], data: st.DataObject
) -> None:
    inputs, outputs = len(weights[0][0]), len(weights[-1])
    residual_rank = data.draw(st.integers(0, min(inputs, outputs)))
    randomness = random.Random(data.draw(st.integers(0, 2**32)))
    moment = [[0] * inputs for _ in range(outputs)]
    if residual_rank:
        factors = random_matrix(randomness, outputs, residual_rank), random_matrix(randomness, residual_rank, inputs)
        moment = product(*factors)
    assert predicted_ranks(product_ranks(weights), residual_rank) == exact_ranks(weights, moment)


@given(st.lists(st.integers(1, 7), min_size=2, max_size=7), st.data())
@share_of_examples(4)
def test_generic_weights_give_the_formulas_of_linear_networks(widths: list[int], data: st.DataObject) -> None:
    input_rank = data.draw(st.integers(0, widths[0]))
    outputs = data.draw(st.integers(0, widths[-1]))
    residual_rank = data.draw(st.integers(0, min(input_rank, outputs)))
    vertices = (input_rank, *widths[1:-1], outputs)
    table = [[min(vertices[i : j + 1]) for i in range(j + 1)] for j in range(len(vertices))]
    assert outer_product_rank(table) == linear.outer_product_rank(widths, input_rank, effective_output_dim=outputs)
    facts = (widths, input_rank, residual_rank)
    assert functional_rank(table, residual_rank) == linear.functional_rank(*facts, effective_output_dim=outputs)
    assert loss_rank(table, residual_rank) == linear.loss_rank(*facts, effective_output_dim=outputs)


def test_the_counterexample_of_the_papers_assumption_is_settled() -> None:
    table = product_ranks(A1_IS_NOT_ENOUGH)
    assert table == [[2], [2, 3], [1, 2, 2], [1, 2, 2, 3], [1, 1, 1, 2, 2]]
    moment = random_matrix(random.Random(0), 2, 2)
    assert predicted_ranks(table, 2) == exact_ranks(A1_IS_NOT_ENOUGH, moment)
    assert outer_product_rank(table) == 3
    assert linear.outer_product_rank((2, 3, 2, 3, 2), 2) == 4


def test_the_residual_joins_the_earliest_start_to_the_latest_end() -> None:
    weights = sum_of_intervals(4, [(0, 0), (0, 3), (1, 3), (2, 4), (4, 4)])
    moment = random_matrix(random.Random(0), 2, 2)
    assert exact_ranks(weights, moment)[1] == 16, "the other way to join them has rank 10"
    assert predicted_ranks(product_ranks(weights), 2) == exact_ranks(weights, moment)


def test_weights_of_zero_leave_what_two_layers_alone_can_do() -> None:
    table = [[3], [0, 4], [0, 0, 2]]
    assert predicted_ranks(table, 2) == (0, 2 * 2 * 4, 2 * 2 * 4)
    assert predicted_ranks([[3], [0, 4], [0, 0, 4], [0, 0, 0, 2]], 2) == (0, 0, 0)


def test_intervals_give_the_table_back() -> None:
    table = product_ranks(A1_IS_NOT_ENOUGH)
    counts = interval_counts(table)
    for stop, row in enumerate(table):
        for start, value in enumerate(row):
            assert value == sum(count for (a, b), count in counts.items() if a <= start and b >= stop)


@pytest.mark.parametrize("num_layers", [2, 3, 4, 5])
def test_the_pairing_of_two_strings_does_not_depend_on_their_order(num_layers: int) -> None:
    strings = [String(start, length) for start in range(num_layers) for length in range(1, 2 * num_layers)]
    for left in strings:
        for right in strings:
            assert pairing_rank(left, right, num_layers) == pairing_rank(right, left, num_layers)


def test_tables_that_no_weights_have_are_refused() -> None:
    with pytest.raises(InvalidInput, match="vertices 0 to 0 would need -1 intervals"):
        outer_product_rank([[1], [2, 2]])
    with pytest.raises(InvalidInput, match="row j with the entries 0..j"):
        outer_product_rank([[1], [1]])
    with pytest.raises(InvalidInput, match=r"product_ranks\[1\]\[0\] must be at least 0"):
        outer_product_rank([[1], [-1, 1]])
    with pytest.raises(InvalidInput, match="residual_rank must be at most 1"):
        loss_rank([[1], [1, 2]], 2)
    with pytest.raises(InvalidInput, match="never falls"):
        nested_sum_dimension([2, 1], [1, 1])


def _entry_and_equations(num_layers: int, x: tuple[int, int], y: tuple[int, int]) -> tuple[Interval, list[Interval]]:
    """Of the lemma of research/docs/conjectures.md: which f_k make the entry once around, and which each equation."""
    (start, end), (other_start, other_end) = x, y
    low, high = start - 1, other_end + 1
    first, last = max(other_start, start + 1), min(num_layers + other_end, num_layers + end + 1)
    windows = [(max(s - num_layers, low), min(s - 1, high)) for s in range(first, last + 1)]
    return (low, high), windows


@pytest.mark.parametrize("num_layers", range(2, 8))
def test_a_change_in_the_kernel_does_not_change_the_map_around_the_cycle(num_layers: int) -> None:
    """The entry is a sum of equations for every two strings that the earliest start with the latest end allows."""
    strings = list(product_of(range(1, num_layers + 1), range(num_layers)))
    for x, y in product_of(strings, strings):
        if (x[0] < y[0] and x[1] < y[1]) or (x[0] > y[0] and x[1] > y[1]):
            continue  # two such strings would have been joined the other way round
        entry, equations = _entry_and_equations(num_layers, x, y)
        assert interval_rank([*equations, entry]) == interval_rank(equations), (x, y)


def test_the_joining_of_strings_is_needed_for_it() -> None:
    entry, equations = _entry_and_equations(4, (1, 0), (3, 3))
    assert interval_rank([*equations, entry]) > interval_rank(equations)
