"""Ranks of the three Hessians of one head of linear self-attention, whose outputs are its values.

F = X Q K^T G V with G = X^T X, for tokens X (n, d), N samples. Only S = Q K^T and V matter for the function. It is the
family of quadratic forms s_a(x) v_c(x) (rows of S, columns of V) or, of a single token, of cubic forms
(x^T S x) v_c(x).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb

from hessmap.theory.attention.subspace_products import equal_products_dimension, sum_of_products_dimension
from hessmap.theory.fully_connected.linear import HessianRanks

__all__ = [
    "HeadSizes",
    "enough_samples",
    "functional_rank",
    "head_ranks",
    "loss_rank",
    "outer_product_rank",
    "seen_score_dimension",
]


@dataclass(frozen=True)
class HeadSizes:
    """Integers of a head and its data: ``width`` d, ``key_width``, ``value_width`` v, N samples of n tokens.

    Attributes:
        width: Width d of the tokens, or of the residual stream.
        key_width: Width of queries and keys of a head.
        value_width: Width of the values of a head.
        num_samples: Number of samples N.
        num_tokens: Tokens n of a sample.
        is_merged: Whether Q K^T is one trained matrix.
        is_value_frozen: Whether the values are not trained.

    Notes:
        ``width`` is the dimension that the tokens span: the rest of the weights is never met. ``is_merged``: one matrix
        S in place of Q K^T. ``is_value_frozen``: V is no parameter.
    """

    width: int
    key_width: int
    value_width: int
    num_samples: int
    num_tokens: int
    is_merged: bool = False
    is_value_frozen: bool = False

    @property
    def score_rank(self) -> int:
        """k, the rank of S."""
        return self.width if self.is_merged else min(self.key_width, self.width)

    @property
    def score_parameters(self) -> int:
        return self.width**2 if self.is_merged else 2 * self.width * self.key_width

    @property
    def num_parameters(self) -> int:
        return self.score_parameters + self.width * self.value_width * (not self.is_value_frozen)

    @property
    def score_dimension(self) -> int:
        """D, the dimension of the matrices S of rank k or, of a single token, of their symmetric parts."""
        d, k = self.width, self.score_rank
        if self.num_tokens > 1:
            return k * (2 * d - k)
        rank = min(2 * k, d)
        return rank * d - comb(rank, 2)

    @property
    def has_many_samples(self) -> bool:
        """Whether the samples fix the function: as many as the polynomials x_i (x) G that they are values of."""
        d = self.width
        return self.num_samples >= enough_samples(d, self.num_tokens)


def enough_samples(width: int, num_tokens: int) -> int:
    """Samples beyond which no rank changes: the dimension of the cubic polynomials of the tokens, plus two.

    Args:
        width: Width d of the tokens, or of the residual stream.
        num_tokens: Tokens n of a sample.

    Returns:
        A number of samples beyond which no rank changes.

    Example:
        >>> enough_samples(2, num_tokens=1), enough_samples(2, num_tokens=5)
        (6, 8)
    """
    return (comb(width + 2, 3) if num_tokens == 1 else width * comb(width + 1, 2)) + 2


def head_ranks(sizes: HeadSizes) -> HessianRanks:
    """The three ranks of one head, all its tokens read, for any number of samples and tokens.

    Args:
        sizes: Integers of the head and its data.

    Returns:
        The ranks of the three Hessians.

    Notes:
        Formulas, with k = min(key_width, d), w = min(v, d), y = min(n, d), D the ``score_dimension``: with many samples

        - outer product: D + d v - 1; V frozen: D;
        - functional: 2 d key_width + min(d v, D); V frozen: 2 d key_width; one matrix S: 2 min(D, d v);
        - loss: all parameters; one matrix S: D + d v.

        With few samples what the data see is less, by dimensions of sums of products of subspaces
        (``subspace_products``); ``outer_product_rank``, ``functional_rank`` and ``loss_rank`` state them.

        Assumptions: generic weights, tokens and residuals, a loss whose second derivative is positive definite.

        Reference: research/docs/attention-residual.md, with proofs for many samples, for one sample and for n = 1 or n
        >= d with V frozen; all else is conjectured from exact arithmetic, and an upper bound where it was found to
        fail.

    Example:
        D = key_width = v = n = N = 1, F = q k v x^3: ranks 1, 3, 3.

        >>> head_ranks(HeadSizes(1, 1, 1, 1, 1))
        HessianRanks(outer_product=1, functional=3, loss=3)
    """
    return HessianRanks(outer_product_rank(sizes), functional_rank(sizes), loss_rank(sizes))


def seen_score_dimension(sizes: HeadSizes) -> int:
    """What the data see of S, which is the outer-product rank where V is frozen.

    Args:
        sizes: Integers of the head and its data.

    Returns:
        The dimension.

    Notes:
        Sample s sees S on W_s (x) V_s, W_s the span of its tokens and V_s = G_s V in it; dS runs over the tangent space
        of the matrices of rank k, whose annihilator is P (x) R, both of dimension d - k. So it is dim(sum_s W_s (x) V_s
        + P (x) R) - (d - k)^2: exact for one and two samples, and for three if k = d; an upper bound else.

    Example:
        n = 1: min(N, D). n >= d: the matrices of rank k in d x min(d, N w).

        >>> seen_score_dimension(HeadSizes(3, 3, 2, num_samples=2, num_tokens=2))    # 2 lines of a plane meet: not 8
        7
        >>> seen_score_dimension(HeadSizes(5, 5, 2, num_samples=3, num_tokens=4))    # not 24
        22
    """
    d, k, n, samples = sizes.width, sizes.score_rank, sizes.num_tokens, sizes.num_samples
    w = min(sizes.value_width, d)
    if n == 1:
        return min(samples, sizes.score_dimension)
    if n >= d:
        return _rank_at_most(d, min(d, samples * w), k)
    z, left = min(n, w), d - k
    bounds = [sizes.score_dimension, _seen_keys(sizes) + samples * min(n, k) * z]
    if samples <= 4:
        arms = [(n, z)] * samples + [(left, left)]
        bounds.append(sum_of_products_dimension(d, d, arms) - left**2)
    if w >= n:
        bounds.append(_seen_symmetric_and_skew(sizes))
    return min(bounds)


def outer_product_rank(sizes: HeadSizes) -> int:
    """min((v-w) rV + min(beta + N min(n,k) w, D + d w - 1), v rV + s - 1), with s the ``seen_score_dimension``, rV =
    min(d, N min(n, k)) what the data see of a column of V, and beta of the keys. One less is lost except for the
    scaling S -> t S, V -> V / t; of two samples of n >= d tokens with k = w = d, a pencil of forms, d scalings.

    Args:
        sizes: Integers of the head and its data.

    Returns:
        The rank.

    Example:
        >>> outer_product_rank(HeadSizes(2, 2, 2, num_samples=2, num_tokens=2))
        6
    """
    if sizes.is_value_frozen:
        return seen_score_dimension(sizes)
    d, k, v, samples, n = sizes.width, sizes.score_rank, sizes.value_width, sizes.num_samples, sizes.num_tokens
    w = min(v, d)
    seen_value = _seen_value(sizes)
    by_columns = min(_seen_keys(sizes) + samples * min(n, k) * w, sizes.score_dimension + d * w - 1)
    rank = min((v - w) * seen_value + by_columns, v * seen_value + seen_score_dimension(sizes) - 1)
    is_pencil = n >= d and samples == 2 and k == w == d
    return rank - (d - 1) * is_pencil


def functional_rank(sizes: HeadSizes) -> int:
    """2 key_width u + rho + min(tau, s): u = min(d, N min(y, v)) the rank of the gradient in S, tau what residuals and
    tokens span together, rho what the keys that no residual meets add. One matrix S: 2 min(s with v >= d, tau).

    Args:
        sizes: Integers of the head and its data.

    Returns:
        The rank.

    Example:
        >>> functional_rank(HeadSizes(7, 6, 4, num_samples=3, num_tokens=3))
        109
    """
    d, v, samples = sizes.width, sizes.value_width, sizes.num_samples
    y = min(sizes.num_tokens, d)
    tau = equal_products_dimension(v, d, samples, (min(y, v), y))
    if sizes.is_merged:
        return 0 if sizes.is_value_frozen else 2 * min(_seen_by_wide_value(sizes), tau)
    gradient = 2 * sizes.key_width * _gradient_rank(sizes)
    if sizes.is_value_frozen:
        return gradient
    return gradient + min(_unmet_keys(sizes), max(0, v * (d - v))) + min(tau, seen_score_dimension(sizes))


def loss_rank(sizes: HeadSizes) -> int:
    """All parameters but those that neither the Jacobian nor the residuals meet: of Q and K, e key_width - c and
    e key_width - rho (e = d - u); of V, (d - rV) v less what the keys add.

    Args:
        sizes: Integers of the head and its data.

    Returns:
        The rank.

    Example:
        >>> loss_rank(HeadSizes(2, 1, 1, num_samples=8, num_tokens=2))
        6
    """
    d, v = sizes.width, sizes.value_width
    if sizes.is_merged:
        return _merged_loss_rank(sizes)
    unmet, keys = d - _gradient_rank(sizes), sizes.key_width
    if sizes.is_value_frozen:
        met = d - unmet
        return 2 * met * keys + _value_frozen_keys(sizes) if unmet else 2 * d * keys
    found, free = _unmet_keys(sizes), d - _seen_value(sizes)
    lost_values = max(0, free * v - min(_seen_keys(sizes), free * _seen_value(sizes)))
    return (
        sizes.num_parameters - (unmet * keys - found) - (unmet * keys - min(found, max(0, v * (d - v)))) - lost_values
    )


def _merged_loss_rank(sizes: HeadSizes) -> int:
    d, v, samples = sizes.width, sizes.value_width, sizes.num_samples
    if sizes.is_value_frozen:
        return seen_score_dimension(sizes)
    y = min(sizes.num_tokens, d)
    wide = _seen_by_wide_value(sizes)
    if v >= y:
        return d * v + wide
    seen = seen_score_dimension(sizes)
    met = min(wide, seen + d * v - v * max(v, d - samples * (y - v)))
    if sizes.num_tokens >= d:
        rank = _gradient_rank(sizes)
        met = min(met, seen + (d - rank) * rank)
    return d * v + met


def _rank_at_most(rows: int, columns: int, rank: int) -> int:
    """The dimension of the matrices of at most a rank."""
    rank = min(rows, columns, rank)
    return rank * (rows + columns - rank)


def _gradient_rank(sizes: HeadSizes) -> int:
    """u, the rank of the gradient in S: each sample gives min(y, v) of it."""
    d = sizes.width
    return min(d, sizes.num_samples * min(sizes.num_tokens, d, sizes.value_width))


def _seen_value(sizes: HeadSizes) -> int:
    """rV, what the data see of a column of V."""
    return min(sizes.width, sizes.num_samples * min(sizes.num_tokens, sizes.score_rank))


def _seen_keys(sizes: HeadSizes) -> int:
    """beta: of the directions of S outside its rank, those that a sample sees beyond the keys it has."""
    d, k, n, samples = sizes.width, sizes.score_rank, sizes.num_tokens, sizes.num_samples
    w = min(sizes.value_width, d)
    if n >= d:
        return (d - k) * min(k, samples * w)
    return equal_products_dimension(d - k, k, samples, (n - k, min(k, w)))


def _unmet_keys(sizes: HeadSizes) -> int:
    """c, what the Jacobian sees of the rows of Q and K that no residual meets."""
    d, v = sizes.width, sizes.value_width
    y, met = min(sizes.num_tokens, d), _gradient_rank(sizes)
    return equal_products_dimension(d - met, min(sizes.score_rank, met), sizes.num_samples, (y - v, v))


def _value_frozen_keys(sizes: HeadSizes) -> int:
    d, v = sizes.width, sizes.value_width
    y, met = min(sizes.num_tokens, d), _gradient_rank(sizes)
    return equal_products_dimension(d - met, min(sizes.key_width, met), sizes.num_samples, (y - v, v))


def _seen_by_wide_value(sizes: HeadSizes) -> int:
    return seen_score_dimension(replace(sizes, value_width=max(sizes.value_width, sizes.width)))


def _seen_symmetric_and_skew(sizes: HeadSizes) -> int:
    """The symmetric and the skew part of S apart, each on the spans of the tokens."""
    d, n, samples = sizes.width, sizes.num_tokens, sizes.num_samples
    shared = max(0, 2 * n - d) if samples == 2 else 0
    symmetric = min(samples * comb(n + 1, 2) - comb(shared + 1, 2), comb(d + 1, 2))
    return symmetric + min(samples * comb(n, 2) - comb(shared, 2), comb(d, 2))
