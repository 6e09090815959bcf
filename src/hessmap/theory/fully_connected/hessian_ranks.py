"""The three ranks that belong together, for deep linear networks with and without bias."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hessmap.theory.conditions import checked_widths
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
