"""Ranks of one head of linear self-attention of which the last token alone is read."""

from __future__ import annotations

from hessmap.theory.attention.single_head import HeadSizes


def seen_score_dimension(sizes: HeadSizes) -> int:
    """What the last tokens see of S: min(N min(n, w), D, R(min(N, d), d, k)), R the matrices of rank at most k.

    >>> seen_score_dimension(HeadSizes(2, 1, 1, num_samples=1, num_tokens=2))
    1
    """
    d, k, samples = sizes.width, sizes.score_rank, sizes.num_samples
    rows = min(samples, d)
    rank = min(rows, k)
    seen = samples * min(sizes.num_tokens, sizes.value_width, d)
    return min(seen, sizes.score_dimension, rank * (rows + d - rank))


def outer_product_rank(sizes: HeadSizes) -> int:
    """min((v-w) rV + min(N w, D + d w - 1), v rV + s - 1) with rV = min(N, d) and s the ``seen_score_dimension``.

    Assumptions: two or more tokens, which span the width. Reference: docs/attention-residual.md, conjectured.

    By hand for two samples of a head of width and key width 1, F = q k (x^2 + z^2) x v: one row of three weights.

    >>> outer_product_rank(HeadSizes(1, 1, 1, num_samples=2, num_tokens=2))
    1
    """
    seen = seen_score_dimension(sizes)
    if sizes.is_value_frozen:
        return seen
    d, v, samples = sizes.width, sizes.value_width, sizes.num_samples
    w, seen_value = min(v, d), min(samples, d)
    by_columns = min(samples * w, sizes.score_dimension + d * w - 1)
    return min((v - w) * seen_value + by_columns, v * seen_value + seen - 1)


def functional_rank(sizes: HeadSizes) -> int | None:
    """2 d key_width + min(d v, s) for N >= d; with V frozen 2 key_width min(N, d) for any N. None where it is open.

    >>> functional_rank(HeadSizes(2, 1, 1, num_samples=2, num_tokens=2))
    6
    """
    d, samples = sizes.width, sizes.num_samples
    if sizes.is_value_frozen:
        return 0 if sizes.is_merged else 2 * sizes.key_width * min(samples, d)
    if sizes.is_merged or samples < d:
        return None
    return 2 * d * sizes.key_width + min(d * sizes.value_width, seen_score_dimension(sizes))


def loss_rank(sizes: HeadSizes) -> int | None:
    """All parameters for N >= d. None where it is open.

    >>> loss_rank(HeadSizes(2, 1, 1, num_samples=2, num_tokens=2))
    6
    """
    if sizes.is_merged:
        return seen_score_dimension(sizes) if sizes.is_value_frozen else None
    return sizes.num_parameters if sizes.num_samples >= sizes.width else None
