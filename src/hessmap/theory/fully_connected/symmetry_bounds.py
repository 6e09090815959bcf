"""Upper bounds that symmetries and unreached weights give to networks of any depth and activation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from hessmap.theory.conditions import checked_input_rank, checked_output, checked_widths

POSITIVELY_HOMOGENEOUS = frozenset({"identity", "relu", "leaky_relu"})


def reachable_parameters_upper_bound(
    widths: Iterable[int], input_rank: int, biases: Sequence[bool] = (), *, effective_output_dim: int | None = None
) -> int:
    """Each of the three Hessians has rank at most p - M_1 (d - r) - flat, for any activation.

    First-layer weights orthogonal to all inputs change nothing: M_1 (d - r) directions. Last-layer changes along an
    output direction that the loss cannot see leave the loss as it is: flat = (M_{L-1} + bias)(K - K_eff) directions.

    Assumptions: none on the weights. ``biases`` says by layer whether it has a bias; none has unless given.
    ``input_rank`` is r, with a bias in the first layer the centred rank rc; ``effective_output_dim`` is K_eff.

    Reference: the first two terms of Singh, Bachmann & Hofmann 2021, Fact 11.

    By hand for 3-2-1 with r = 2: 8 parameters, of which 2 * 1 are unreached.

    >>> reachable_parameters_upper_bound((3, 2, 1), input_rank=2)
    6
    """
    widths = checked_widths(widths)
    input_rank = checked_input_rank(widths, input_rank)
    outputs = checked_output(widths, effective_output_dim)
    visible = (*widths[:-1], outputs)
    layers = zip(pairwise(visible), biases or (False,) * (len(widths) - 1), strict=True)
    parameters = sum((before + bias) * after for (before, after), bias in layers)
    return parameters - visible[1] * (widths[0] - input_rank)


def rescaling_upper_bound(
    widths: Iterable[int], input_rank: int, biases: Sequence[bool] = (), *, effective_output_dim: int | None = None
) -> int:
    """Positively homogeneous activations: the outer-product Hessian has rank at most p - M_1 (d - r) - flat - sum M_i.

    Scaling what enters a hidden unit by c and what leaves it by 1/c changes no output: one direction of the kernel
    of the Jacobian per hidden unit. flat is that of ``reachable_parameters_upper_bound``.

    Assumptions: ReLU, leaky ReLU or identity; any weights. With the activation pattern of each sample held fixed the
    network is a polynomial with this symmetry, whose directions are independent for generic weights; for others the
    rank of the Jacobian can only drop. ``biases`` and ``input_rank`` as above.

    Reference: Singh, Bachmann & Hofmann 2021, Fact 11, there empirical and for live units; it follows from the
    rescaling symmetry. Equal to Theorem 9 with all units active for one hidden layer; often not tight from three
    layers on.

    By hand for 4-5-2: 30 parameters less 5, the rank that ReLU reaches with 40 samples.

    >>> rescaling_upper_bound((4, 5, 2), input_rank=4)
    25
    """
    widths = checked_widths(widths)
    outputs = checked_output(widths, effective_output_dim)
    reachable = reachable_parameters_upper_bound(widths, input_rank, biases, effective_output_dim=outputs)
    return max(reachable - sum(widths[1:-1]), 0)
