"""Hessian ranks of linear networks with ANY weights, given the ranks of all products of consecutive weights.

The formulas of ``linear`` require products of maximal rank; here nothing is required of the weights W_1, .., W_L.
``product_ranks`` is a table rho with rho[j][i] = rank of W_j .. W_{i+1} for 0 <= i < j <= L, and rho[i][i] = the
dimension of vertex i: the rank r of the inputs, the hidden widths, the outputs K (K - 1 where the loss does not depend
on one output direction; W_L is then meant without it). W_1 stands for its action on the span of the inputs.
``residual_rank`` s is the rank of Omega = sum residual x^T. Assumption shared by the functional and the loss Hessian:
Omega = P Q^T is in general position among the matrices of rank s, whatever the weights are, its scale included.
Theorems, no bias. With generic weights they give the formulas of ``linear``, and so prove them.

A network is, up to a change of basis at every vertex, a direct sum of intervals: copies of 1 -> 1 -> .. -> 1 on the
vertices i..j, zero elsewhere (the representations of a line of arrows; Gabriel 1972). rho counts the copies, and the
copies determine rho. The functional Hessian of W_L .. W_1 and Omega is the quadratic form
sum_{k < l} tr(Omega^T W_L .. dW_l .. dW_k .. W_1): all ways to go once around the cycle of vertices 0, 1, .., L - 1,
L = 0, with two arrows replaced. On the part of the network where going around is a nilpotent map, there is a basis of
strings: v -> v' -> v'' -> .. -> 0, each vector one vertex further (the nilpotent representations of a cycle of arrows).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from hessmap.errors import require
from hessmap.theory.data_ranks import checked_count, checked_residual_rank

__all__ = [
    "String",
    "functional_rank",
    "interval_counts",
    "interval_rank",
    "loss_rank",
    "nested_sum_dimension",
    "outer_product_rank",
    "pairing_rank",
]

RankTable = Sequence[Sequence[int]]


def outer_product_rank(product_ranks: RankTable) -> int:
    """The outer-product Hessian has rank sum_l (u_l - u_{l-1}) v_l, u_l = rho[L][l], v_l = rho[l-1][0], u_0 = 0.

    Args:
        product_ranks: Table rho: row j has the ranks of W_j .. W_{i+1} for i < j, and the dimension of vertex j.

    Returns:
        The rank.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Theorem, for all weights and every loss with a second derivative by the outputs that is positive definite on
        what it sees. Proof: the rank is that of the Jacobian, whose image is the sum over the layers l of Im(W_L ..
        W_{l+1}) (x) Im(X^T W_1^T .. W_{l-1}^T). The first spaces grow with l and the second ones shrink.

        Reference: Singh, Bachmann & Hofmann 2021, Corollary 4, claimed for weights of maximal rank; corrected where
        their products lose rank: the weights of 2-3-2-3-2 in ``linear``'s docstring, here, have rank 3, printed 4.

    Example:
        >>> outer_product_rank([[2], [2, 3], [1, 2, 2], [1, 2, 2, 3], [1, 1, 1, 2, 2]])
        3
    """
    return nested_sum_dimension(*_spaces_of_layers(checked_product_ranks(product_ranks)))


def functional_rank(product_ranks: RankTable, residual_rank: int) -> int:
    """The functional Hessian: q (D_{l-1} + D_l - q) for every layer, and the pairings of the strings that are left.

    Args:
        product_ranks: Table rho: row j has the ranks of W_j .. W_{i+1} for i < j, and the dimension of vertex j.
        residual_rank: Rank s of the residual moment sum residual x^T.

    Returns:
        The rank.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Here D = (s, M_1, .., M_{L-1}, s) and q = min(s, rho[L][0]); L = 1 gives 0. Strings: see ``_strings``.

        Theorem. Proof: only P^T W_L and W_1 Q enter, so inputs and outputs have dimension s, and Omega = 1 closes the
        network to a cycle. Going around it is, for Omega in general position, invertible on q dimensions with distinct
        eigenvalues and zero on the rest (Fitting). Between two of the q directions the form is a matrix with zeros on
        its diagonal, one eigenvalue below and another above, of determinant not zero; between one of them and a string
        it is triangular without zeros on its diagonal: all q (D_{l-1} + D_l - q) weights of layer l count. What is left
        is a form between pairs of strings, which ``pairing_rank`` counts.

        Reference: Singh, Bachmann & Hofmann 2021, Corollary 6, a bound for this.

    Example:
        1-1-1-1 with w_2 = 0: only d2/dw_1 dw_2 and d2/dw_2 dw_3 are left, [[0,1,0],[1,0,1],[0,1,0]].

        >>> functional_rank([[1], [1, 1], [0, 0, 1], [0, 0, 1, 1]], residual_rank=1)
        2
    """
    table, rank = _checked_ranks(product_ranks, residual_rank)
    num_layers = len(table) - 1
    if num_layers == 1:
        return 0
    seen = _through_residual(table, rank)
    q = seen[-1][0]
    around = sum(q * (before[-1] + after[-1] - q) for before, after in pairwise(seen))
    strings = _strings(seen)
    pairs = (
        count * other_count * pairing_rank(string, other, num_layers)
        for string, count in strings.items()
        for other, other_count in strings.items()
    )
    return around + sum(pairs)


def loss_rank(product_ranks: RankTable, residual_rank: int) -> int:
    """The loss Hessian: that of the functional one, plus what the outer-product part adds on its kernel.

    Args:
        product_ranks: Table rho: row j has the ranks of W_j .. W_{i+1} for i < j, and the dimension of vertex j.
        residual_rank: Rank s of the residual moment sum residual x^T.

    Returns:
        The rank.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Formula: rk(H_f) + min(s, u_1) (r - s) + (K - s) min(s, v_L) + sum_l (u'_l - u'_{l-1}) v'_l with u_l and v_l as
        in ``outer_product_rank``, u'_l = max(u_l - s, 0) and v'_l = max(v_l - s, 0). For L = 1 it is rk(H_o).

        Theorem. Proof: H_o is positive semi-definite, so except for special scales of the residual the rank is rk(H_f)
        + dim J(ker H_f). For a change in ker H_f the output map changes by y with P^T y in P^T Im(W_L .. W_2) (x) R^r
        (layer 1), y Q in R^K (x) (the rows of W_{L-1} .. W_1 Q) (layer L), and P^T y Q = 0, because string by string
        these sums are among those that H_f sets to zero. Changes of one layer alone reach all such y, and the three
        terms count them.

        Reference: Singh, Bachmann & Hofmann 2021, Fact 7, which is this for generic weights and s >= q0.

    Example:
        1-1-1-1 with w_2 = 0: the Jacobian (0, w_1 w_3, 0) x is a row of H_f already.

        >>> loss_rank([[1], [1, 1], [0, 0, 1], [0, 0, 1, 1]], residual_rank=1)
        2
    """
    table, s = _checked_ranks(product_ranks, residual_rank)
    to_output, from_input = _spaces_of_layers(table)
    if len(table) == 2:
        return nested_sum_dimension(to_output, from_input)
    inputs, outputs = table[0][0], table[-1][-1]
    unseen = nested_sum_dimension([max(u - s, 0) for u in to_output], [max(v - s, 0) for v in from_input])
    first, last = min(s, to_output[0]) * (inputs - s), (outputs - s) * min(s, from_input[-1])
    return functional_rank(table, s) + first + last + unseen


def _spaces_of_layers(table: RankTable) -> tuple[list[int], list[int]]:
    """By layer l = 1..L the ranks u_l = rho[L][l] to the outputs, and v_l = rho[l-1][0] from the inputs."""
    return list(table[-1][1:]), [row[0] for row in table[:-1]]


def _through_residual(table: RankTable, s: int) -> RankTable:
    """The table of P^T W_L, .., W_1 Q: products that reach an end have at most rank s."""
    last = len(table) - 1
    return [
        [min(rank, s) if i == 0 or j == last else rank for i, rank in enumerate(row)] for j, row in enumerate(table)
    ]


def _strings(table: RankTable) -> Counter[String]:
    """The strings of the nilpotent part of a network whose ends, of one dimension, a generic Omega = 1 joins.

    Intervals of hidden vertices are strings as they are. Of the others, except for those that lead from input to
    output, each interval a..L continues as one 0..e: two flags in general position have a common basis, in which the
    earliest a meets the latest e.
    """
    num_layers = len(table) - 1
    strings: Counter[String] = Counter()
    for (first, last), count in interval_counts(table).items():
        if first > 0 and last < num_layers and count:
            strings[String(first, last - first + 1)] += count
    to_output, from_input = table[-1], [row[0] for row in table]
    starts = [a for a in range(1, num_layers + 1) for _ in range(to_output[a] - to_output[a - 1])]
    ends = [e for e in reversed(range(num_layers)) for _ in range(from_input[e] - from_input[e + 1])]
    strings.update(String(a % num_layers, num_layers - a + e + 1) for a, e in zip(starts, ends, strict=True))
    return strings


def _checked_ranks(product_ranks: RankTable, residual_rank: int) -> tuple[RankTable, int]:
    table = checked_product_ranks(product_ranks)
    largest = min(table[0][0], table[-1][-1])
    return table, checked_residual_rank(residual_rank, largest, "the smaller of input rank and outputs")


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
    must = "product_ranks must contain a row for every vertex, row j with the entries 0..j, and at least two rows"
    is_triangle = len(table) >= 2 and all(len(row) == j + 1 for j, row in enumerate(table))
    require(is_triangle, must, f"the rows have {tuple(map(len, table))} entries")
    for (first, last), count in interval_counts(table).items():
        must = "product_ranks must be the ranks of the products of some weights"
        require(count >= 0, must, f"vertices {first} to {last} would need {count} intervals")
    return table


def interval_counts(table: RankTable) -> dict[tuple[int, int], int]:
    """How many intervals live on the vertices i..j: rho[j][i] - rho[j+1][i] - rho[j][i-1] + rho[j+1][i-1].

    Args:
        table: Table rho of product ranks, as ``checked_product_ranks`` returns it.

    Returns:
        Number of intervals for each pair (i, j).

    Example:
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
    """Vectors at ``length`` consecutive vertices of the cycle, the first at vertex ``start``.

    Attributes:
        start: Vertex of the first vector.
        length: Number of vectors, at consecutive vertices of the cycle.
    """

    start: int
    length: int


def pairing_rank(left: String, right: String, num_layers: int) -> int:
    """The rank of the functional Hessian between the arrows from one string to another and those that lead back.

    Args:
        left: First string.
        right: Second string.
        num_layers: Number of layers L.

    Returns:
        The rank.

    Notes:
        Arrows from right[j] to left[i] (one vertex further) pair with arrows from left[i'] to right[j'] when left leads
        from i to i' and right from j' to j, in L - 2 steps together: i' - j' = i - j + L - 2 and 0 <= i' - i <= L - 2.
        So for each difference i - j the pairing is a matrix of zeros and ones whose rows are intervals. Of a string
        with itself the arrows pair with one another, and the count is the same.

        Theorem (it counts a rank).

    Example:
        L = 2 and two single vectors, at vertices 0 and 1: one arrow each way, and no other step.

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

    Args:
        rows: Start and stop of the ones in each row.

    Returns:
        The rank.

    Example:
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

    Args:
        growing: Dimensions u_i of spaces that grow.
        shrinking: Dimensions v_i of spaces that shrink, as many.

    Returns:
        The dimension.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``growing`` holds u_i = dim U_i, ``shrinking`` holds v_i = dim V_i.

        Theorem, for any nested spaces. Proof: choose a basis of U_1, extend it to one of U_2, and so on. A basis vector
        e that is new in U_i meets V_i, V_{i+1}, .., the largest of which is V_i; so the sum is the direct sum of e (x)
        V_i over all basis vectors e.

    Example:
        >>> nested_sum_dimension([1, 3], [4, 2])
        8
    """
    must = "dimensions of nested spaces must be a sequence that never falls and as long a one that never rises"
    is_nested = all(a <= b for a, b in pairwise(growing)) and all(a >= b for a, b in pairwise(shrinking))
    require(len(growing) == len(shrinking) and is_nested, must, f"got {tuple(growing)} and {tuple(shrinking)}")
    steps = (after - before for before, after in pairwise((0, *growing)))
    return sum(step * other for step, other in zip(steps, shrinking, strict=True))
