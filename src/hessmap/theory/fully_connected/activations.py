"""What is provable for networks with activations: symmetries, weights that nothing reaches, and activation patterns.

The ranks of the linear formulas are NOT upper bounds here: 4-5-2 with ReLU and 40 samples has an outer-product Hessian
of rank 25 (linear formula: 8) and a loss Hessian of rank 30, all its parameters (linear formula: 24).

A unit is active on a sample if its pre-activation is positive. Every ``effective_output_dim`` is K, or K - 1 under
cross-entropy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from hessmap.errors import require
from hessmap.theory.data_ranks import (
    checked_count,
    checked_input_rank,
    checked_output,
    checked_widths,
    outer_product_sample_upper_bound,
)
from hessmap.theory.fully_connected.linear import HessianRanks

__all__ = [
    "ActivationGroup",
    "activation_groups_upper_bound",
    "active_units_upper_bound",
    "one_hidden_functional_rank",
    "one_hidden_ranks",
    "reachable_parameters_upper_bound",
    "rescaling_upper_bound",
]


def reachable_parameters_upper_bound(
    widths: Iterable[int], input_rank: int, biases: Sequence[bool] = (), *, effective_output_dim: int | None = None
) -> int:
    """Each of the three Hessians has rank at most p - M_1 (d - r) - flat, for any activation.

    Args:
        widths: Widths d, M_1, .., K, input first and output last.
        input_rank: Rank r of the inputs.
        biases: By layer, whether it has a bias. Defaults to none.
        effective_output_dim: Number of output directions K in which the loss curves. Defaults to all.

    Returns:
        The upper bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        First-layer weights orthogonal to all inputs change nothing: M_1 (d - r) directions. Last-layer changes along an
        output direction that the loss cannot see leave the loss as it is: flat = (M_{L-1} + bias)(K - K_eff)
        directions.

        Assumptions: none on the weights. ``biases``: for each layer whether it has a bias (default: none has).
        ``input_rank`` is r, with a bias in the first layer the centred rank rc; ``effective_output_dim`` is K_eff.

        Reference: the first two terms of Singh, Bachmann & Hofmann 2021, Fact 11.

    Example:
        3-2-1 with r = 2: 8 parameters, of which 2 * 1 are unreached.

        >>> reachable_parameters_upper_bound((3, 2, 1), input_rank=2)
        6
    """
    widths = checked_widths(widths)
    input_rank = checked_input_rank(widths[0], input_rank)
    outputs = checked_output(widths, effective_output_dim)
    visible = (*widths[:-1], outputs)
    layers = zip(pairwise(visible), biases or (False,) * (len(widths) - 1), strict=True)
    parameters = sum((before + bias) * after for (before, after), bias in layers)
    return parameters - visible[1] * (widths[0] - input_rank)


def rescaling_upper_bound(
    widths: Iterable[int], input_rank: int, biases: Sequence[bool] = (), *, effective_output_dim: int | None = None
) -> int:
    """Positively homogeneous activations: the outer-product Hessian has rank at most p - M_1 (d - r) - flat - sum M_i.

    Args:
        widths: Widths d, M_1, .., K, input first and output last.
        input_rank: Rank r of the inputs.
        biases: By layer, whether it has a bias. Defaults to none.
        effective_output_dim: Number of output directions K in which the loss curves. Defaults to all.

    Returns:
        The upper bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Scaling what enters a hidden unit by c and what leaves it by 1/c changes no output: one direction of the kernel
        of the Jacobian per hidden unit. flat is that of ``reachable_parameters_upper_bound``.

        Assumptions: ReLU, leaky ReLU or identity; any weights. With the activation pattern of each sample held fixed
        the network is a polynomial with this symmetry, whose directions are independent for generic weights; for others
        the rank of the Jacobian can only drop. ``biases`` and ``input_rank`` as above.

        Reference: Singh, Bachmann & Hofmann 2021, Fact 11, there empirical and for live units; it follows from the
        rescaling symmetry. Equal to Theorem 9 with all units active for one hidden layer; often not tight from three
        layers on.

    Example:
        4-5-2: 30 parameters less 5, the rank that ReLU reaches with 40 samples.

        >>> rescaling_upper_bound((4, 5, 2), input_rank=4)
        25
    """
    widths = checked_widths(widths)
    outputs = checked_output(widths, effective_output_dim)
    reachable = reachable_parameters_upper_bound(widths, input_rank, biases, effective_output_dim=outputs)
    return max(reachable - sum(widths[1:-1]), 0)


class ActivationGroup(NamedTuple):
    """Hidden units with one common activation pattern, and the rank of the inputs on which they are active.

    Attributes:
        num_units: Hidden units with this activation pattern.
        input_rank: Rank of the inputs on which they are active.
    """

    num_units: int
    input_rank: int


def active_units_upper_bound(num_active_units: int, input_rank: int, effective_output_dim: int) -> int:
    """One hidden layer: the outer-product Hessian has rank at most M~ (r + K - 1).

    Args:
        num_active_units: Units M~ that are active on some sample.
        input_rank: Rank r of the inputs.
        effective_output_dim: Number of output directions K in which the loss curves.

    Returns:
        The upper bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``num_active_units`` M~ counts the units active on some sample, ``input_rank`` is r.

        Assumptions: one hidden layer without bias, sigma(z) = sigma'(z) z (ReLU; for leaky ReLU every unit counts).

        Reference: Singh, Bachmann & Hofmann 2021, Theorem 9; its assumption A2 (inputs weighted by each unit's pattern
        keep rank r) is not needed for the bound.

    Example:
        One unit is one weight vector of r visible directions and K outgoing weights, less the rescaling between them.

        >>> active_units_upper_bound(num_active_units=5, input_rank=4, effective_output_dim=2)
        25
    """
    units = checked_count("num_active_units", num_active_units)
    rank = checked_count("input_rank", input_rank)
    outputs = checked_count("effective_output_dim", effective_output_dim)
    require(units == 0 or rank > 0, "an active unit needs inputs of rank at least 1", f"got input_rank {rank}")
    return units * (rank + outputs - 1) if outputs else 0


def activation_groups_upper_bound(
    groups: Iterable[ActivationGroup | tuple[int, int]], num_samples: int, effective_output_dim: int
) -> int:
    """One hidden layer: rank at most min(N K, sum over groups of q_g (r_g + K - q_g)), q_g = min(r_g, units, K).

    Args:
        groups: Number of units and rank of their inputs, for each activation pattern.
        num_samples: Number of samples N.
        effective_output_dim: Number of output directions K in which the loss curves.

    Returns:
        The upper bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        A group collects the units with one activation pattern: on its inputs, of rank r_g, it acts as a linear network.
        Dead units form a group with r_g = 0, or are left out.

        Assumptions: one hidden ReLU layer without bias.

        Reference: sharpens Singh, Bachmann & Hofmann 2021, Theorem 9, by applying Corollary 4 to each group.

    Example:
        Two units that are active together on inputs of rank 3 act as 3-2-1: min = 1, so 1 (3 + 1 - 1); apart, 3 each.

        >>> activation_groups_upper_bound([(2, 3)], num_samples=9, effective_output_dim=1)
        3
        >>> activation_groups_upper_bound([(1, 3), (1, 3)], num_samples=9, effective_output_dim=1)
        6
    """
    outputs = checked_count("effective_output_dim", effective_output_dim)
    total = 0
    for num_units, input_rank in groups:
        units = checked_count("num_units", num_units)
        rank = checked_count("input_rank", input_rank)
        q = min(rank, units, outputs)
        total += q * (rank + outputs - q)
    return min(outer_product_sample_upper_bound(num_samples, outputs), total)


def one_hidden_functional_rank(unit_input_ranks: Iterable[int], effective_output_dim: int) -> int:
    """One hidden layer: the functional Hessian has rank 2 sum_i min(K, r_i), exactly.

    Args:
        unit_input_ranks: By unit, the rank r_i of the inputs on which it is active.
        effective_output_dim: Number of output directions K in which the loss curves.

    Returns:
        The rank.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``unit_input_ranks`` are the r_i: the rank of the inputs on which unit i is active.

        Assumptions: one hidden ReLU layer without bias, generic residual. H_f couples each unit's incoming with its
        outgoing weights only, by the K x d moment of the residual with the inputs on which the unit is active.

        Reference: follows from Singh, Bachmann & Hofmann 2021, S8.2, unit by unit.

    Example:
        >>> one_hidden_functional_rank([2, 0, 3], effective_output_dim=2)
        8
    """
    outputs = checked_count("effective_output_dim", effective_output_dim)
    return 2 * sum(min(outputs, checked_count("unit_input_ranks", rank)) for rank in unit_input_ranks)


def one_hidden_ranks(
    widths: Iterable[int],
    input_rank: int,
    biases: Sequence[bool] = (),
    *,
    effective_output_dim: int | None = None,
    num_stationary_units: int = 0,
) -> HessianRanks:
    """One hidden layer of ReLU or leaky ReLU units on many samples: every parameter counts, less the rescalings in H_o.

    Without bias, with r = d: rk H_o = M (d + K - 1), rk H_f = 2 M min(d, K), and rk H_L = p - n, n the number of units
    at which the gradient vanishes: 0 in general position, M at critical points.

    Args:
        widths: Widths d, M, K.
        input_rank: Rank r of the inputs; with a bias in the first layer the rank of the centred inputs.
        biases: Whether the first and the second layer have a bias. Defaults to none.
        effective_output_dim: Number of output directions K in which the loss curves. Defaults to all.
        num_stationary_units: Number n of units whose gradient vanishes, in all weights that enter and leave. Defaults
            to 0.

    Returns:
        The three ranks.

    Raises:
        InvalidInput: If there is not one hidden layer, or a number is out of range; without bias in the first layer
            several units need inputs of rank 2.

    Notes:
        Assumptions: inputs with a positive density on the space that they span, in the limit of many samples: from
        some number of samples on the ranks are these almost surely; fewer samples have at most these ranks of H_o. No
        two units have the same hyperplane, none has outgoing weights zero in all output directions that count, and the
        residual, its scale included, is in general position except at units where the gradient vanishes. At a
        unit that is active on all samples, or on none, the theorem does not apply.

        Reference: research/docs/fully-connected.md, proofs for ReLU networks; equality in Singh, Bachmann & Hofmann
        2021, Theorem 9.

    Example:
        4-5-2: 30 parameters, and five rescalings.

        >>> one_hidden_ranks((4, 5, 2), input_rank=4)
        HessianRanks(outer_product=25, functional=20, loss=30)
        >>> one_hidden_ranks((4, 5, 2), input_rank=4, num_stationary_units=5).loss
        25
    """
    widths = checked_widths(widths)
    require(len(widths) == 3, "the ranks are those of one hidden layer", f"got widths {widths}")
    first, _ = biases or (False, False)
    outputs = checked_output(widths, effective_output_dim)
    rank, units = checked_input_rank(widths[0], input_rank), widths[1]
    stationary = checked_count("num_stationary_units", num_stationary_units)
    require(stationary <= units, f"at most {units} units are stationary", f"got {stationary}")
    distinct = rank + first >= 2 or (units == 1 and rank >= 1)
    require(distinct, "units need different hyperplanes: inputs of rank 2, or 1 with a bias", f"got rank {rank}")
    require(outputs >= 1, "the loss must depend on an output", "got none that counts")
    reachable = reachable_parameters_upper_bound(widths, rank, biases, effective_output_dim=outputs)
    functional = units * one_hidden_functional_rank([rank + first], outputs)  # all units alike
    return HessianRanks(reachable - units, functional, reachable - stationary)
