"""Ranks of one head of linear self-attention under a causal mask, for few samples: every token is a sample of its own.

Token i of a sample attends to the i tokens up to itself, so that it reads x_i and its own G_i, of rank i: N n rows
x_i^T Q K^T G_i V, as of N n last tokens that see 1, 2, .., n tokens.
"""

from __future__ import annotations

from hessmap.theory.attention.single_head import HeadSizes


def seen_score_dimension(sizes: HeadSizes) -> int:
    """What the data see of S: token i sees x_i (x) G_i V, of dimension min(i, w); min(D, N sum_i min(i, w)).

    By hand for one sample of two tokens in the plane, w = 2: 1 + 2 of the 4 entries of S.

    >>> seen_score_dimension(HeadSizes(2, 2, 2, num_samples=1, num_tokens=2))
    3
    """
    n, w = sizes.num_tokens, min(sizes.value_width, sizes.width)
    few = min(n, w)
    return min(sizes.score_dimension, sizes.num_samples * (few * (few + 1) // 2 + (n - few) * w))


def outer_product_rank_bound(sizes: HeadSizes) -> int:
    """min((v-w) d + min(N n w, D + d w - 1), v d + s - 1), with s the ``seen_score_dimension``; s if V is frozen.

    Assumptions: two or more tokens, which span the width d. Reference: docs/conjectures.md, conjectured as a bound; one
    layer below it is known (d = 6, key_width = 5, v = 2, 12 samples of 2 tokens: 44, not 46).

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
    """2 d key_width + min(d v, s). One sample can have less: d = 5, key_width = 4, v = 5, n = 6 has 59, not 60.

    >>> functional_rank_bound(HeadSizes(2, 1, 1, num_samples=1, num_tokens=2))
    6
    """
    return 2 * sizes.width * sizes.key_width + min(sizes.width * sizes.value_width, seen_score_dimension(sizes))
