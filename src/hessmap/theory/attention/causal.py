"""Bounds of the ranks of one head of linear self-attention under a causal mask, for few samples.

Token t of a sample attends to the t tokens up to itself: it reads x_t and its own G_t, whose image W_t is spanned by
them. In a basis e_1, e_2, .. of these nested spaces e_i meets the tokens from i on, n - i + 1 of them. So a sum over
the tokens of one sample of u_t (x) W_t is a staircase: column i has the span of u_i, .., u_n, of dimension
min(size of u, n - i + 1).
"""

from __future__ import annotations

from math import comb

from hessmap.theory.attention.single_head import HeadSizes

__all__ = [
    "attended_score_dimension",
    "functional_rank_bound",
    "loss_rank_bound",
    "outer_product_rank_bound",
    "seen_score_dimension",
    "staircase_dimension",
]


def staircase_dimension(width: int, rows: int, num_samples: int, num_tokens: int, rank: int | None = None) -> int:
    """At most the dimension of the sum over all tokens of u_t (x) W_t, u_t in R^rows, W_t in R^width.

    Args:
        width: Width d of the tokens, or of the residual stream.
        rows: Dimension of the vectors u_t.
        num_samples: Number of samples N.
        num_tokens: Tokens n of a sample.
        rank: Largest rank of the sum. Defaults to no limit.

    Returns:
        The dimension.

    Notes:
        The least of rows * width; of N times the staircase of one sample; and of the tokens that see all of R^width,
        each with width of its own, and all the others. ``rank``: what is seen of the tangent space of the matrices of a
        rank: an entry beyond column ``rank`` and row ``rank`` of a staircase is fixed by those before it.

    Example:
        One sample of two tokens in the plane: 2 rows for e_1, one for e_2.

        >>> staircase_dimension(2, 2, num_samples=1, num_tokens=2)
        3
        >>> staircase_dimension(5, 5, num_samples=1, num_tokens=5, rank=2)    # of 15 entries one minor fixes one
        14
    """
    if min(width, rows, num_tokens) <= 0:
        return 0
    columns = min(width, num_tokens)
    most = columns if rank is None else min(columns, rank)
    narrow = min(rows, num_tokens) if rank is None else min(rows, num_tokens, rank)
    each = _column_sum(rows, num_tokens, 0, most) + _column_sum(narrow, num_tokens, most, columns)
    seeing_all = num_samples * max(0, num_tokens - width + 1)
    others = num_samples * comb(min(num_tokens, width - 1) + 1, 2)
    by_tokens = width * min(rows, seeing_all) + min(width * max(0, rows - seeing_all), others)
    return min(width * rows, num_samples * each, by_tokens)


def _column_sum(rows: int, num_tokens: int, start: int, stop: int) -> int:
    """sum of min(rows, num_tokens - i) for i = start .. stop - 1, i < num_tokens."""
    full = min(max(num_tokens - rows + 1, start), stop)  # the columns before it have all rows
    rest = stop - full
    return rows * (full - start) + rest * num_tokens - (comb(stop, 2) - comb(full, 2))


def attended_score_dimension(sizes: HeadSizes) -> int:
    """At most what the pairs of a token and one that it sees, x_t (x) W_t, see of S.

    Args:
        sizes: Integers of the head and its data.

    Returns:
        The dimension: the least of D, the staircase of x_t, and the skew part (one for each pair of tokens) with the
        whole symmetric part.

    Example:
        >>> attended_score_dimension(HeadSizes(5, 5, 2, num_samples=8, num_tokens=2))    # not 3 * 8
        23
    """
    d, n, samples = sizes.width, sizes.num_tokens, sizes.num_samples
    parts = min(samples * comb(n, 2), comb(d, 2)) + comb(d + 1, 2)
    return min(sizes.score_dimension, staircase_dimension(d, d, samples, n, sizes.score_rank), parts)


def seen_score_dimension(sizes: HeadSizes) -> int:
    """At most what the data see of S: token t sees x_t (x) G_t V, of dimension min(t, w), inside x_t (x) W_t.

    Args:
        sizes: Integers of the head and its data.

    Returns:
        The dimension.

    Example:
        One sample of two tokens in the plane, w = 2: 1 + 2 of the 4 entries of S.

        >>> seen_score_dimension(HeadSizes(2, 2, 2, num_samples=1, num_tokens=2))
        3
    """
    n, w = sizes.num_tokens, min(sizes.value_width, sizes.width)
    few = min(n, w)
    tokens = sizes.num_samples * (comb(few + 1, 2) + (n - few) * w)
    return min(attended_score_dimension(sizes), tokens)


def outer_product_rank_bound(sizes: HeadSizes) -> int:
    """min((v-w) d + min(N n w, D + d w - 1), v d + s - 1), with s the ``seen_score_dimension``; s if V is frozen.

    Args:
        sizes: Integers of the head and its data.

    Returns:
        The upper bound.

    Notes:
        Assumptions: two or more tokens, which span the width d. Reference: proof in research/docs/conjectures.md.

    Example:
        >>> outer_product_rank_bound(HeadSizes(2, 2, 2, num_samples=1, num_tokens=2))    # two tokens of two outputs
        4
    """
    seen = seen_score_dimension(sizes)
    if sizes.is_value_frozen:
        return seen
    d, v = sizes.width, sizes.value_width
    w, rows = min(v, d), sizes.num_samples * sizes.num_tokens
    return min((v - w) * d + min(rows * w, sizes.score_dimension + d * w - 1), v * d + seen - 1)


def functional_rank_bound(sizes: HeadSizes) -> int:
    """2 d key_width + m, m the least of the ``attended_score_dimension`` and of the staircase of the residuals; of one
    matrix S 2 m.

    Args:
        sizes: Integers of the head and its data.

    Returns:
        The upper bound.

    Example:
        >>> functional_rank_bound(HeadSizes(5, 4, 5, num_samples=1, num_tokens=6))    # not 60
        59
    """
    d, v = sizes.width, sizes.value_width
    residuals = staircase_dimension(d, v, sizes.num_samples, sizes.num_tokens)
    met = min(residuals, attended_score_dimension(sizes))
    return 2 * met if sizes.is_merged else 2 * d * sizes.key_width + met


def loss_rank_bound(sizes: HeadSizes) -> int:
    """All parameters; of one matrix S d v + min(a, s + m): a and s the attended and the seen dimension of S, m what
    residuals see of directions that outputs do not see, the staircase of the residuals across V.

    Args:
        sizes: Integers of the head and its data.

    Returns:
        The upper bound.

    Example:
        >>> loss_rank_bound(HeadSizes(5, 1, 2, num_samples=1, num_tokens=5, is_merged=True))
        24
    """
    d, v, n = sizes.width, sizes.value_width, sizes.num_tokens
    if not sizes.is_merged:
        return sizes.num_parameters
    across = staircase_dimension(d - v, v, sizes.num_samples, n - v)
    return d * v + min(attended_score_dimension(sizes), seen_score_dimension(sizes) + across)
