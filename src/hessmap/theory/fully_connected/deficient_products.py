"""Hessian ranks of linear networks with ANY weights, given the ranks of all products of consecutive weights.

The formulas of ``linear`` ask for products of maximal rank; here nothing is asked of the weights W_1, .., W_L.
``product_ranks`` is the table rho of ``representations``: rho[j][i] = rank of W_j .. W_{i+1}, on the data. The loss
enters through rho[L][L] = K, or K - 1 where it is blind to one output direction (W_L is then meant without it).

``residual_rank`` s is the rank of Omega = sum residual x^T. Assumption shared by the functional and the loss Hessian:
Omega = P Q^T is in general position among the matrices of rank s, whatever the weights are, its scale included.

Kind of truth: theorems. No bias. With generic weights they give the formulas of ``linear``, and so prove them.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hessmap.theory.conditions import checked_residual_rank
from hessmap.theory.fully_connected.representations import (
    RankTable,
    String,
    checked_product_ranks,
    interval_counts,
    nested_sum_dimension,
    pairing_rank,
)


def outer_product_rank(product_ranks: RankTable) -> int:
    """The outer-product Hessian has rank sum_l (u_l - u_{l-1}) v_l, u_l = rho[L][l], v_l = rho[l-1][0], u_0 = 0.

    Kind of truth: theorem, for all weights and every loss with a second derivative by the outputs that is positive
    definite on what it sees. Proof: the rank is that of the Jacobian, whose image is the sum over the layers l of
    Im(W_L .. W_{l+1}) (x) Im(X^T W_1^T .. W_{l-1}^T). The first spaces grow with l and the second ones shrink.

    Reference: Singh, Bachmann & Hofmann 2021, Corollary 4, claimed for weights of maximal rank; corrected where their
    products lose rank: the weights of 2-3-2-3-2 in ``linear``'s docstring, here, have rank 3, printed 4.

    >>> outer_product_rank([[2], [2, 3], [1, 2, 2], [1, 2, 2, 3], [1, 1, 1, 2, 2]])
    3
    """
    return nested_sum_dimension(*_spaces_of_layers(checked_product_ranks(product_ranks)))


def functional_rank(product_ranks: RankTable, residual_rank: int) -> int:
    """The functional Hessian: q (D_{l-1} + D_l - q) for every layer, and the pairings of the strings that are left.

    Here D = (s, M_1, .., M_{L-1}, s) and q = min(s, rho[L][0]); L = 1 gives 0. Strings: see ``_strings``.

    Kind of truth: theorem. Proof: only P^T W_L and W_1 Q enter, so inputs and outputs have dimension s, and Omega = 1
    closes the network to a cycle. Going around it is, for Omega in general position, invertible on q dimensions with
    distinct eigenvalues and zero on the rest (Fitting). Between two of the q directions the form is a matrix with
    zeros on its diagonal, one eigenvalue below and another above, of determinant not zero; between one of them and a
    string it is triangular without zeros on its diagonal: all q (D_{l-1} + D_l - q) weights of layer l count. What is
    left is a form between pairs of strings, which ``pairing_rank`` counts.

    Reference: Singh, Bachmann & Hofmann 2021, Corollary 6, a bound for this.

    By hand for 1-1-1-1 with w_2 = 0: only d2/dw_1 dw_2 and d2/dw_2 dw_3 are left, [[0,1,0],[1,0,1],[0,1,0]].

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

    Formula: rk(H_f) + min(s, u_1) (r - s) + (K - s) min(s, v_L) + sum_l (u'_l - u'_{l-1}) v'_l with u_l and v_l as in
    ``outer_product_rank``, u'_l = max(u_l - s, 0) and v'_l = max(v_l - s, 0). For L = 1 it is rk(H_o).

    Kind of truth: theorem. Proof: H_o is positive semi-definite, so but for special scales of the residual the rank
    is rk(H_f) + dim J(ker H_f). For a change in ker H_f the output map changes by y with P^T y in P^T Im(W_L .. W_2)
    (x) R^r (layer 1), y Q in R^K (x) (the rows of W_{L-1} .. W_1 Q) (layer L), and P^T y Q = 0, because string by
    string these sums are among those that H_f sets to zero. Changes of one layer alone reach all such y, and the
    three terms count them.

    Reference: Singh, Bachmann & Hofmann 2021, Fact 7, which is this for generic weights and s >= q0.

    By hand for 1-1-1-1 with w_2 = 0: the Jacobian (0, w_1 w_3, 0) x is a row of H_f already.

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

    Intervals of hidden vertices are strings as they are. Of the others, but for those that lead from input to output,
    each interval a..L continues as one 0..e: two flags in general position have a common basis, in which the earliest
    a meets the latest e.
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
