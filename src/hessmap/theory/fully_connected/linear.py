"""Hessian ranks of deep linear networks without bias.

Shared by every function here: ``widths`` are d = M_0, M_1, .., M_L = K with L layers; ``input_rank`` r is the rank of
sum x x^T (not centred); ``residual_rank`` s is the rank of Omega = sum residual x^T; ``effective_output_dim`` is K
unless the loss is blind to some outputs (see ``losses``), and stands for K wherever a formula says K. Below,
q0 = min(r, M_1, .., M_{L-1}, K) is ``bottleneck_rank``, q = min(q0, s) is ``active_bottleneck_rank``, and
M = M_1 + .. + M_{L-1}.

Assumptions shared by every function here: generic weights, that is, every PRODUCT of consecutive weights, and every
W^{k:1} Omega^T W^{L:l}, has maximal rank. Assumption A1 of Singh, Bachmann & Hofmann 2021 (each single weight of
maximal rank) is not enough: widths 2-3-2-3-2 with W1 = [[1,0],[0,1],[0,0]], W2 = [[1,0,0],[0,0,1]],
W3 = [[1,0],[0,0],[0,1]], W4 = [[1,0,0],[0,1,0]] meet A1, and the outer-product Hessian has rank 3, not 4.

The rank of the outer-product Hessian is proved in the paper. The equalities for the functional and the loss Hessian are
the generic case of ``deficient_products``, proved in research/docs/conjectures.md; they also held for every random
architecture tried in exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hessmap.theory.conditions import (
    Widths,
    checked_input_rank,
    checked_output,
    checked_residual_rank,
    checked_widths,
)


def generic_residual_rank(input_rank: int, effective_output_dim: int) -> int:
    """A residual in general position has the largest rank there is: min(r, K).

    ``input_rank`` is the rank of the inputs, centred if the residuals sum to zero over the samples.

    >>> generic_residual_rank(61, effective_output_dim=10)
    10
    """
    return min(input_rank, effective_output_dim)


def bottleneck_rank(widths: Iterable[int], input_rank: int, *, effective_output_dim: int | None = None) -> int:
    """The rank of the end-to-end map on the data: q0 = min(r, M_1, .., M_{L-1}, K).

    >>> bottleneck_rank((6, 2, 4), input_rank=5)
    2
    """
    widths, input_rank, outputs = _checked_map(widths, input_rank, effective_output_dim)
    return min((input_rank, *widths[1:-1], outputs))


def active_bottleneck_rank(widths: Iterable[int], residual_rank: int) -> int:
    """The rank of the residual moment seen through every hidden layer: q = min(s, M_1, .., M_{L-1}).

    Since s is at most min(r, K), this is min(q0, s).

    >>> active_bottleneck_rank((6, 5, 4), residual_rank=1)
    1
    """
    return min((residual_rank, *checked_widths(widths)[1:-1]))


def outer_product_rank(widths: Iterable[int], input_rank: int, *, effective_output_dim: int | None = None) -> int:
    """The outer-product Hessian has rank q0 (r + K - q0), for any depth and any bottleneck.

    Assumptions: generic weights (see the module); nothing is assumed of the residual.

    Reference: Singh, Bachmann & Hofmann 2021, Theorem 3 and Corollary 4; corrected: their assumption A1 must be
    asked of products of consecutive weights (counterexample 2-3-2-3-2 in the module's docstring).

    One layer 3-2 on inputs of rank 3 is linear regression, 2 * 3 free directions; through one hidden unit only
    1 * (3 + 2 - 1) are left.

    >>> outer_product_rank((3, 2), input_rank=3), outer_product_rank((3, 1, 2), input_rank=3)
    (6, 4)
    """
    widths, input_rank, outputs = _checked_map(widths, input_rank, effective_output_dim)
    q0 = bottleneck_rank(widths, input_rank, effective_output_dim=outputs)
    return q0 * (input_rank + outputs - q0)


def functional_rank(
    widths: Iterable[int], input_rank: int, residual_rank: int, *, effective_output_dim: int | None = None
) -> int:
    """The functional Hessian has rank 2 q M + 2 q s - L q^2 for L >= 2, and is zero for L = 1.

    Assumptions: generic weights and a generic residual of rank s.

    Reference: Singh, Bachmann & Hofmann 2021, Corollary 6, there an upper bound; for generic weights it is an
    equality. At L = 1 the printed expression is 2 q s - q^2, but a linear map has no second derivative.

    Width 1-1-1 is w2 w1 x: the mixed derivative by w1 and w2 fills both off-diagonal entries.

    >>> functional_rank((1, 1, 1), 1, 1), functional_rank((6, 5, 4), 6, 1), functional_rank((6, 4), 6, 4)
    (2, 10, 0)
    """
    widths, residual_rank = _checked_residual(widths, input_rank, residual_rank, effective_output_dim)
    num_layers = len(widths) - 1
    if num_layers == 1:
        return 0
    q = active_bottleneck_rank(widths, residual_rank)
    return 2 * q * sum(widths[1:-1]) + 2 * q * residual_rank - num_layers * q**2


def loss_rank(
    widths: Iterable[int], input_rank: int, residual_rank: int, *, effective_output_dim: int | None = None
) -> int:
    """The loss Hessian has rank q0 (r + K - q0) + 2 q M - (L - 1) q^2, for every L >= 1 and every s, also s = 0.

    Assumptions: generic weights and a generic residual of rank s, its scale included (1-1-1 with
    Omega = -2 w1 w2 sum x^2 has rank 1 instead of 2).

    Reference: Singh, Bachmann & Hofmann 2021, Fact 7, which is this for s >= q0; corrected for s < q0: widths 6-5-4
    with r = 6, s = 1 have rank 33, where Fact 7 gives 48 (or 18 with s inside its q).

    By hand for 6-5-4: q0 = 4, q = 1, so 4 (6 + 4 - 4) + 2 * 5 - 1.

    >>> loss_rank((6, 5, 4), input_rank=6, residual_rank=1)
    33
    """
    widths, residual_rank = _checked_residual(widths, input_rank, residual_rank, effective_output_dim)
    q = active_bottleneck_rank(widths, residual_rank)
    outer = outer_product_rank(widths, input_rank, effective_output_dim=effective_output_dim)
    return outer + 2 * q * sum(widths[1:-1]) - (len(widths) - 2) * q**2


def functional_column_ranks(
    widths: Iterable[int], input_rank: int, residual_rank: int, *, effective_output_dim: int | None = None
) -> tuple[int, ...]:
    """The block column of layer l of the functional Hessian has rank q M_{l-1} + q M_l - q^2, s standing for d and K.

    The first layer has q M_1 + q s - q^2, the last q M_{L-1} + q s - q^2. The ranks of the block columns add up to
    the rank of the whole, although their column spaces are not orthogonal. L = 1 gives (0,).

    Assumptions: generic weights and a generic residual of rank s.

    Reference: Singh, Bachmann & Hofmann 2021, Theorem 5, exact for L >= 2.

    >>> functional_column_ranks((1, 1, 1), 1, 1), functional_column_ranks((6, 5, 3, 4), 6, 2)
    ((1, 1), (10, 12, 6))
    """
    widths, residual_rank = _checked_residual(widths, input_rank, residual_rank, effective_output_dim)
    if len(widths) == 2:
        return (0,)
    q = active_bottleneck_rank(widths, residual_rank)
    vertices = (residual_rank, *widths[1:-1], residual_rank)
    return tuple(q * (before + after - q) for before, after in pairwise(vertices))


def _checked_map(widths: Iterable[int], input_rank: int, effective_output_dim: int | None) -> tuple[Widths, int, int]:
    """Widths, input rank and effective output dimension as plain integers."""
    widths = checked_widths(widths)
    return widths, checked_input_rank(widths, input_rank), checked_output(widths, effective_output_dim)


def _checked_residual(
    widths: Iterable[int], input_rank: int, residual_rank: int, effective_output_dim: int | None
) -> tuple[Widths, int]:
    """Widths and residual rank as plain integers, the residual rank possible for these inputs and outputs."""
    widths, input_rank, outputs = _checked_map(widths, input_rank, effective_output_dim)
    largest = generic_residual_rank(input_rank, outputs)
    why = "the smaller of input rank and effective output dimension"
    return widths, checked_residual_rank(residual_rank, largest, why)
