"""Ranks of one head of linear self-attention of which the last token alone is read."""

from __future__ import annotations

from hessmap.theory.attention.single_head import HeadSizes
from hessmap.theory.attention.subspace_products import equal_products_dimension

__all__ = [
    "functional_rank",
    "loss_rank",
    "outer_product_rank",
    "seen_score_dimension",
]


def seen_score_dimension(sizes: HeadSizes) -> int:
    """What the last tokens see of S: min(N min(n, w), D, R(min(N, d), d, k)), R the matrices of rank at most k.

    Args:
        sizes: Integers of the head and its data.

    Returns:
        The dimension.

    Example:
        >>> seen_score_dimension(HeadSizes(2, 1, 1, num_samples=1, num_tokens=2))
        1
    """
    seen = sizes.num_samples * min(sizes.num_tokens, sizes.value_width, sizes.width)
    return min(seen, sizes.score_dimension, _low_rank(sizes))


def outer_product_rank(sizes: HeadSizes) -> int:
    """min((v-w) rV + min(N w, D + d w - 1), v rV + s - 1) with rV = min(N, d) and s the ``seen_score_dimension``.

    Args:
        sizes: Integers of the head and its data.

    Returns:
        The rank.

    Notes:
        Assumptions: two or more tokens, which span the width. Reference: research/docs/attention-residual.md,
        conjectured.

    Example:
        Two samples of a head of width and key width 1, F = q k (x^2 + z^2) x v: one row of three weights.

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


def functional_rank(sizes: HeadSizes) -> int:
    """2 d key_width + min(d v, s) for N >= d; for fewer samples 2 N key_width + rho + min(tau, R(N, d, k)).

    Args:
        sizes: Integers of the head and its data.

    Returns:
        The rank.

    Notes:
        tau is what residuals and tokens span together, the sum of N products of a line of R^v and W_s (the span of a
        sample's tokens, of dimension y); rho pairs the directions of K that no residual meets, of dimension d - N, with
        those of V (``_paired_keys``). With V frozen 2 key_width min(N, d) for any N. One matrix S: 2 min(tau, d^2).

        Kind of result: never above (proof in research/docs/conjectures.md); equality conjectured but where V is frozen.

    Example:
        >>> functional_rank(HeadSizes(2, 1, 1, num_samples=2, num_tokens=2))
        6
        >>> functional_rank(HeadSizes(2, 1, 2, num_samples=1, num_tokens=2))
        5
        >>> functional_rank(HeadSizes(3, 1, 2, num_samples=1, num_tokens=2, is_merged=True))
        4
    """
    d, samples = sizes.width, sizes.num_samples
    if sizes.is_value_frozen:
        return 0 if sizes.is_merged else 2 * sizes.key_width * min(samples, d)
    if sizes.is_merged:
        return 2 * min(_residual_products(sizes), d**2)
    if samples >= d:
        return 2 * d * sizes.key_width + min(d * sizes.value_width, seen_score_dimension(sizes))
    return 2 * samples * sizes.key_width + _paired_keys(sizes) + min(_residual_products(sizes), _low_rank(sizes))


def loss_rank(sizes: HeadSizes) -> int:
    """All parameters for N >= d.

    Args:
        sizes: Integers of the head and its data.

    Returns:
        The rank.

    Notes:
        For fewer samples Q counts N key_width, and of the d - N directions that no residual meets K loses all but what
        samples see of it, q_s (x) W_s, and V all but r_s (x) W_s or, of low key width, R(N, d, k) - N. V frozen: 2 N
        key_width and what outputs see of K. One matrix S: ``_merged_loss_rank``.

        Kind of result: as ``functional_rank``.

    Example:
        >>> loss_rank(HeadSizes(2, 1, 1, num_samples=2, num_tokens=2))
        6
        >>> loss_rank(HeadSizes(3, 2, 3, num_samples=1, num_tokens=3))  # 17 reached, less 2 (2 - 1) + 2 (3 - 1)
        11
    """
    d, keys, values, samples = sizes.width, sizes.key_width, sizes.value_width, sizes.num_samples
    if sizes.is_merged:
        return seen_score_dimension(sizes) if sizes.is_value_frozen else _merged_loss_rank(sizes)
    if samples >= d:
        return sizes.num_parameters
    tokens = min(sizes.num_tokens, d)
    unmet = d - samples
    by_jacobian = equal_products_dimension(unmet, keys, samples, (min(tokens, values) - 1, 1))
    if sizes.is_value_frozen:
        return 2 * samples * keys + by_jacobian
    by_keys = equal_products_dimension(unmet, keys, samples, (tokens - 1, 1))
    met_keys = min(by_keys, by_jacobian + _paired_keys(sizes))
    met_values = min(_met_values(sizes), _low_rank(sizes) - samples)
    return (samples + d) * keys + d * values - unmet * (keys + values) + met_keys + met_values


def _merged_loss_rank(sizes: HeadSizes) -> int:
    """d v, less what no residual meets of V for N < d, and of S what pairs of tokens see, or outputs and residuals.

    By hand for d = 2, v = 1 and two samples: both rows of S are free, outputs see 2 and residuals 1 of their 4 entries.

    >>> _merged_loss_rank(HeadSizes(2, 1, 1, num_samples=2, num_tokens=2, is_merged=True))
    5
    """
    d, v, samples = sizes.width, sizes.value_width, sizes.num_samples
    attended = min(samples * min(sizes.num_tokens, d), min(samples, d) * d)
    lost = max(0, d - samples) * v - _met_values(sizes)
    return d * v - lost + min(attended, seen_score_dimension(sizes) + max(0, v * (d - v)))


def _met_values(sizes: HeadSizes) -> int:
    """What residuals see of V across the d - N directions that outputs do not see: the sum of r_s (x) W_s there."""
    d, samples = sizes.width, sizes.num_samples
    arm = (min(sizes.num_tokens, d) - 1, 1)
    return equal_products_dimension(d - samples, sizes.value_width, samples, arm)


def _low_rank(sizes: HeadSizes) -> int:
    """R(min(N, d), d, k), the dimension of the matrices of rank at most k."""
    rows = min(sizes.num_samples, sizes.width)
    rank = min(rows, sizes.score_rank)
    return rank * (rows + sizes.width - rank)


def _residual_products(sizes: HeadSizes) -> int:
    """tau, the dimension of sum_s r_s (x) W_s."""
    arm = (1, min(sizes.num_tokens, sizes.width))
    return equal_products_dimension(sizes.value_width, sizes.width, sizes.num_samples, arm)


def _paired_keys(sizes: HeadSizes) -> int:
    """rho: of sum_s q_s (x) W_s beyond the gradient's span what V can move; scaling a column of V moves nothing."""
    d, samples, tokens = sizes.width, sizes.num_samples, min(sizes.num_tokens, sizes.width)
    seen = equal_products_dimension(d - samples, sizes.key_width, samples, (tokens - 1, 1))
    return min(seen, _residual_products(sizes) - (samples if sizes.value_width >= samples else 1))
