"""Nilpotent parts of a linear network that a residual closes to a cycle.

The functional Hessian of W_L .. W_1 and Omega is the quadratic form sum_{k < l} tr(Omega^T W_L .. dW_l .. dW_k .. W_1):
all ways to go once around the cycle of vertices 0, 1, .., L - 1, L = 0, with two arrows replaced. On the part of the
network where going around is a nilpotent map, there is a basis of strings: v -> v' -> v'' -> .. -> 0, each vector one
vertex further (the nilpotent representations of a cycle of arrows).
"""

from __future__ import annotations

from typing import NamedTuple


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
