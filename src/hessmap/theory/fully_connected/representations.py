"""A linear network up to changes of basis: intervals, the strings that a residual makes of them, and nested spaces.

A table rho has rho[j][i] = rank of W_j .. W_{i+1} for 0 <= i < j <= L, and rho[i][i] = the dimension of vertex i: the
rank r of the inputs, the hidden widths, the outputs K. Everything is meant on the data: W_1 stands for its action on
the span of the inputs. A network is, up to a change of basis at every vertex, a direct sum of intervals: copies of
1 -> 1 -> .. -> 1 that live on the vertices i..j and vanish elsewhere (the representations of a line of arrows; Gabriel
1972). rho counts the copies, and the copies give rho back.

The functional Hessian of W_L .. W_1 and Omega is the quadratic form sum_{k < l} tr(Omega^T W_L .. dW_l .. dW_k .. W_1):
all ways to go once around the cycle of vertices 0, 1, .., L - 1, L = 0, with two arrows replaced. On the part of the
network where going around is a nilpotent map, there is a basis of strings: v -> v' -> v'' -> .. -> 0, each vector one
vertex further (the nilpotent representations of a cycle of arrows).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from hessmap.errors import require
from hessmap.theory.conditions import checked_count

RankTable = Sequence[Sequence[int]]


class ProductRanks(tuple[tuple[int, ...], ...]):
    """A table that has been checked once, so that one formula can call another without checking it again."""

    __slots__ = ()


def checked_product_ranks(product_ranks: RankTable) -> ProductRanks:
    """The table as plain integers; InvalidInput where no weights can have it."""
    if isinstance(product_ranks, ProductRanks):
        return product_ranks
    table = ProductRanks(
        tuple(checked_count(f"product_ranks[{j}][{i}]", rank) for i, rank in enumerate(row))
        for j, row in enumerate(product_ranks)
    )
    must = "product_ranks must hold a row for every vertex, row j with the entries 0..j, and at least two rows"
    is_triangle = len(table) >= 2 and all(len(row) == j + 1 for j, row in enumerate(table))
    require(is_triangle, must, f"the rows have {tuple(map(len, table))} entries")
    for (first, last), count in interval_counts(table).items():
        must = "product_ranks must be the ranks of the products of some weights"
        require(count >= 0, must, f"vertices {first} to {last} would need {count} intervals")
    return table


def interval_counts(table: RankTable) -> dict[tuple[int, int], int]:
    """How many intervals live on the vertices i..j: rho[j][i] - rho[j+1][i] - rho[j][i-1] + rho[j+1][i-1].

    >>> interval_counts([[2], [1, 1], [1, 1, 2]])
    {(0, 0): 1, (0, 1): 0, (0, 2): 1, (1, 1): 0, (1, 2): 0, (2, 2): 1}
    """
    last = len(table) - 1

    def rank(j: int, i: int) -> int:
        return table[j][i] if i >= 0 and j <= last else 0

    return {
        (i, j): rank(j, i) - rank(j + 1, i) - rank(j, i - 1) + rank(j + 1, i - 1)
        for i in range(last + 1)
        for j in range(i, last + 1)
    }


class String(NamedTuple):
    """Vectors at ``length`` consecutive vertices of the cycle, the first at vertex ``start``."""

    start: int
    length: int


def pairing_rank(left: String, right: String, num_layers: int) -> int:
    """The rank of the functional Hessian between the arrows from one string to another and those that lead back.

    Arrows from right[j] to left[i] (one vertex further) pair with arrows from left[i'] to right[j'] when
    left leads from i to i' and right from j' to j, in L - 2 steps together: i' - j' = i - j + L - 2 and
    0 <= i' - i <= L - 2. So for each difference i - j the pairing is a matrix of zeros and ones whose rows are
    intervals. Of a string with itself the arrows pair with one another, and the count is the same.

    Kind of truth: theorem (it counts a rank).

    By hand for L = 2 and two single vectors, at vertices 0 and 1: one arrow each way, and no other step.

    >>> pairing_rank(String(0, 1), String(1, 1), num_layers=2)
    1
    """
    steps = num_layers - 2
    total = 0
    first = -right.length + 1
    for difference in range(first, left.length):
        if (left.start - right.start + difference - 1) % num_layers:
            continue
        low, high = max(0, difference), min(left.length, right.length + difference)
        column_low = max(0, difference + steps)
        column_high = min(left.length, right.length + difference + steps)
        rows = [(max(i, column_low), min(i + steps + 1, column_high)) for i in range(low, high)]
        total += interval_rank(rows)
    return total


def interval_rank(rows: list[tuple[int, int]]) -> int:
    """The rank of a matrix of zeros and ones, row n being one from rows[n][0] up to, not with, rows[n][1].

    Taken as edges between their two ends, independent rows are the forests of a graph.

    >>> interval_rank([(0, 2), (2, 3), (0, 3), (5, 4)])
    2
    """
    parents: dict[int, int] = {}

    def root(point: int) -> int:
        while parents.setdefault(point, point) != point:
            point = parents[point]
        return point

    rank = 0
    for start, stop in rows:
        if start < stop and root(start) != root(stop):
            parents[root(start)] = root(stop)
            rank += 1
    return rank


def nested_sum_dimension(growing: Sequence[int], shrinking: Sequence[int]) -> int:
    """The sum of U_i (x) V_i, U_1 <= U_2 <= .. and V_1 >= V_2 >= .., has dimension sum_i (u_i - u_{i-1}) v_i, u_0 = 0.

    ``growing`` holds u_i = dim U_i, ``shrinking`` holds v_i = dim V_i.

    Kind of truth: theorem, for any nested spaces. Proof: choose a basis of U_1, extend it to one of U_2, and so on. A
    basis vector e that is new in U_i meets V_i, V_{i+1}, .., the largest of which is V_i; so the sum is the direct sum
    of e (x) V_i over all basis vectors e.

    >>> nested_sum_dimension([1, 3], [4, 2])
    8
    """
    must = "dimensions of nested spaces must be a sequence that never falls and as long a one that never rises"
    is_nested = all(a <= b for a, b in pairwise(growing)) and all(a >= b for a, b in pairwise(shrinking))
    require(len(growing) == len(shrinking) and is_nested, must, f"got {tuple(growing)} and {tuple(shrinking)}")
    steps = (after - before for before, after in pairwise((0, *growing)))
    return sum(step * other for step, other in zip(steps, shrinking, strict=True))
