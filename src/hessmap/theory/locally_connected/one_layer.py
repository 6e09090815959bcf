"""Hessian ranks of one locally connected layer over disjoint patches and one dense layer behind it, linear, no bias.

Shared by every function here: ``patches`` t, ``patch_size`` k inputs in each, ``filters`` m per patch, ``outputs`` K
that the loss can tell apart (K - 1 under cross-entropy).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hessmap.errors import require
from hessmap.theory.conditions import checked_count
from hessmap.theory.fully_connected.hessian_ranks import HessianRanks, linear_hessian_ranks


def locally_connected_ranks(
    patches: int, patch_size: int, filters: int, outputs: int, residual_ranks: int | Sequence[int] | None = None
) -> HessianRanks:
    """Own filters for each patch: the ranks of t networks k-m-K side by side, added.

    Formula: outer product t q (k + K - q), functional 2 m sum_i s_i, loss t q (k + K - q) + sum_i (2 h_i m - h_i^2),
    with q = min(k, m, K) and h_i = min(q, s_i). ``residual_ranks`` are the s_i, the ranks of sum residual (patch i)^T,
    or one number for all patches; generic: min(k, K) each.

    Assumptions: generic weights, inputs of full rank t k, generic residuals of these ranks.

    Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 9, there upper bounds, here equalities, and Fact 13, corrected
    for residuals of lower rank: t = 1, k = 2, m = 2, K = 2 without residual has loss rank 4, where Fact 13 gives 8.

    By hand for two patches of one input, one filter, one output: two networks 1-1-1.

    >>> locally_connected_ranks(patches=2, patch_size=1, filters=1, outputs=1)
    HessianRanks(outer_product=2, functional=4, loss=4)
    """
    count = checked_count("patches", patches, at_least=1)
    if residual_ranks is None:
        residual_ranks = min(patch_size, outputs)
    ranks = Counter({residual_ranks: count}) if isinstance(residual_ranks, int) else Counter(residual_ranks)
    given = ranks.total()
    require(given == count, "residual_ranks must hold one rank per patch", f"got {given} for {count} patches")
    each = [(linear_hessian_ranks((patch_size, filters, outputs), patch_size, s), num) for s, num in ranks.items()]
    return HessianRanks(*(sum(ranks[part] * num for ranks, num in each) for part in range(3)))


def shared_weights_ranks(
    patches: int, patch_size: int, filters: int, outputs: int, residual_rank: int | None = None
) -> HessianRanks:
    """The same filters for every patch: the ranks of one network k-m-Kt.

    Formula: outer product q (k + K t - q), functional 2 m s, loss q (k + K t - q) + 2 h m - h^2, with
    q = min(k, m, K t) and h = min(q, s). ``residual_rank`` s is the rank of the moments sum residual (patch i)^T
    stacked over the patches, K t x k; generic: min(k, K t).

    Assumptions: generic weights, inputs of full rank t k, generic residual of this rank.

    Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 10, there upper bounds, here equalities, and Fact 14, whose
    printed q = min(k, K, K t) is wrong: t = 1, k = 2, m = 1, K = 4 has loss rank 6, where Fact 14 gives 5.

    By hand for that network, 2-1-4: all its 2 + 4 parameters.

    >>> shared_weights_ranks(patches=1, patch_size=2, filters=1, outputs=4).loss
    6
    """
    stacked = checked_count("patches", patches, at_least=1) * outputs
    rank = min(patch_size, stacked) if residual_rank is None else residual_rank
    return linear_hessian_ranks((patch_size, filters, stacked), patch_size, rank)
