"""Ranks of the neural tangent kernel of deep linear networks on n samples.

``input_rank`` r is the rank of the n inputs and ``centred_input_rank`` rc their rank after centring. None of these
ranks depends on the loss: the kernel is made of derivatives of the outputs alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from hessmap.theory.data_ranks import checked_count
from hessmap.theory.fully_connected import linear


def tangent_kernel_rank(widths: Iterable[int], input_rank: int) -> int:
    """Without bias the full kernel, all nK outputs against each other, has rank q0 (r + K - q0).

    It is the rank of the outer-product Hessian of the SQUARED loss, whatever loss the network is trained with,
    because J J^T and J^T J have equal rank.

    Assumptions: generic weights; q0 = min(r, M_1, .., M_{L-1}, K).

    Reference: Singh, Bachmann & Hofmann 2021, remark after Corollary 4 and S9.4; K is never replaced by K - 1.

    By hand for one layer 3-2 on two independent samples: 2 * 2 outputs, all independent.

    >>> tangent_kernel_rank((3, 2), input_rank=2)
    4
    """
    return linear.outer_product_rank(widths, input_rank)


def tangent_kernel_rank_with_bias(widths: Iterable[int], centred_input_rank: int) -> int:
    """With bias in every layer the full kernel has rank q0 (rc + K - q0) + K, q0 = min(rc, M_1, .., M_{L-1}, K).

    Assumptions: generic weights and biases.

    Reference: Singh, Bachmann & Hofmann 2021, S9.4 and Theorem 12; corrected: the rank that counts is the centred one.

    By hand for one layer 3-2 on two samples (rc = 1): 2 * 2 outputs, all independent.

    >>> tangent_kernel_rank_with_bias((3, 2), centred_input_rank=1)
    4
    """
    return linear.outer_product_rank(widths, centred_input_rank, biased_layers="all")


def scalar_tangent_kernel_rank(input_rank: int) -> int:
    """Without bias the n x n kernel of one output, and the trace kernel (their sum), have rank r.

    Both are x^T A x' with a positive definite A, since the first layer alone gives a multiple of x^T x'.

    Assumptions: generic weights.

    Reference: follows from the Jacobian of Singh, Bachmann & Hofmann 2021, Proposition 2.

    >>> scalar_tangent_kernel_rank(5)
    5
    """
    return checked_count("input_rank", input_rank)


def scalar_tangent_kernel_rank_with_bias(centred_input_rank: int) -> int:
    """With bias the n x n kernel of one output, and the trace kernel, have rank rc + 1: inputs with a one appended.

    Assumptions: generic weights and biases.

    Reference: follows from the Jacobian of Singh, Bachmann & Hofmann 2021, equation 27.

    >>> scalar_tangent_kernel_rank_with_bias(5)
    6
    """
    return checked_count("centred_input_rank", centred_input_rank) + 1
