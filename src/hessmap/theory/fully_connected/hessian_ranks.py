"""The three ranks that belong together: of generic linear networks, with bias, and where a bottleneck stops the fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hessmap.errors import require
from hessmap.theory.conditions import checked_input_rank, checked_residual_rank, checked_widths
from hessmap.theory.fully_connected import linear, linear_with_bias


class HessianRanks(NamedTuple):
    """Ranks of the outer-product, functional and loss Hessian of one setting."""

    outer_product: int
    functional: int
    loss: int


def linear_hessian_ranks(
    widths: Iterable[int], input_rank: int, residual_rank: int, *, effective_output_dim: int | None = None
) -> HessianRanks:
    """``linear.outer_product_rank``, ``linear.functional_rank`` and ``linear.loss_rank`` of one network.

    >>> linear_hessian_ranks((1, 1, 1), input_rank=1, residual_rank=1)
    HessianRanks(outer_product=1, functional=2, loss=2)
    """
    widths = checked_widths(widths)
    return HessianRanks(
        linear.outer_product_rank(widths, input_rank, effective_output_dim=effective_output_dim),
        linear.functional_rank(widths, input_rank, residual_rank, effective_output_dim=effective_output_dim),
        linear.loss_rank(widths, input_rank, residual_rank, effective_output_dim=effective_output_dim),
    )


def linear_hessian_ranks_with_bias(
    widths: Iterable[int],
    centred_input_rank: int,
    residual_rank: int,
    *,
    mean_residual_is_zero: bool = False,
    effective_output_dim: int | None = None,
) -> HessianRanks:
    """The same with a bias in every layer, from ``linear_with_bias``.

    >>> linear_hessian_ranks_with_bias((1, 1, 1), centred_input_rank=1, residual_rank=1)
    HessianRanks(outer_product=2, functional=2, loss=4)
    """
    widths = checked_widths(widths)
    functional, loss = (
        rank(
            widths,
            centred_input_rank,
            residual_rank,
            mean_residual_is_zero=mean_residual_is_zero,
            effective_output_dim=effective_output_dim,
        )
        for rank in (linear_with_bias.functional_rank, linear_with_bias.loss_rank)
    )
    outer = linear_with_bias.outer_product_rank(widths, centred_input_rank, effective_output_dim=effective_output_dim)
    return HessianRanks(outer, functional, loss)


def bottleneck_critical_point_ranks(widths: Iterable[int], input_rank: int, residual_rank: int) -> HessianRanks:
    """At a critical point that a bottleneck forces, the loss Hessian has the rank of the outer-product Hessian.

    Formula, with q = min(M_1, .., M_{L-1}) < min(r, K): rank q (r + K - q) for the outer-product and the loss Hessian,
    2 q s for the functional Hessian.

    Assumptions: a deep linear network without bias, squared loss, zero gradient, end-to-end map of rank q, residual
    moment Omega of rank s. The gradient being zero, Omega annihilates the q directions of the map on both sides, so
    1 <= s <= min(r, K) - q. ``widths`` are d, M_1, .., K; ``input_rank`` is r; ``residual_rank`` is s.

    Reference: Singh, Bachmann & Hofmann 2021, Fact 7, over-counts here, for its residual is in general position: widths
    3-1-5 with r = 3, s = 2 have rank 7, where Fact 7 gives 8.

    By hand for 3-1-5: 1 (3 + 5 - 1) = 7 and 2 * 1 * 2 = 4.

    >>> bottleneck_critical_point_ranks((3, 1, 5), input_rank=3, residual_rank=2)
    HessianRanks(outer_product=7, functional=4, loss=7)
    """
    widths = checked_widths(widths)
    input_rank = checked_input_rank(widths, input_rank)
    fit_rank = min(input_rank, widths[-1])
    must = "a bottleneck must be narrower than input rank and outputs"
    require(len(widths) > 2, must, f"widths {widths} have no hidden layer")
    q = min(widths[1:-1])
    require(q < fit_rank, must, f"the narrowest hidden layer has {q} units, the target map rank {fit_rank}")
    require(residual_rank >= 1, "residual_rank must be at least 1", f"got {residual_rank}", "Use linear.loss_rank")
    why = "the rank that the bottleneck leaves unfitted"
    residual_rank = checked_residual_rank(residual_rank, fit_rank - q, why)
    outer = linear.outer_product_rank(widths, input_rank)
    return HessianRanks(outer, 2 * q * residual_rank, outer)
