"""Upper bounds of the loss Hessian, layer by layer: each block column is at most as high as its layer can be felt."""

from __future__ import annotations

from collections.abc import Iterable

from hessmap.errors import require
from hessmap.theory.conditions import checked_count, checked_input_rank, checked_residual_rank, checked_widths
from hessmap.theory.fully_connected.linear import generic_residual_rank


def loss_column_upper_bounds(
    sizes: Iterable[int],
    layer_parameters: Iterable[int],
    residual_rank: int | None = None,
    input_rank: int | None = None,
) -> tuple[int, ...]:
    """The block column of layer l of the loss Hessian has rank at most min(p_l, a M_{l-1} + b M_l - a b).

    Here a = min(M_l, .., M_L) bounds the rank of the layers behind, b = min(s, M_0, .., M_{l-1}) that of the residual's
    moment as it arrives, and M_0 is r. The loss Hessian has rank at most the sum of its columns.

    A change D of W_l is felt through A D (A the product behind: outputs and earlier layers) and through D b_l (b_l the
    moment that arrives: later layers), and so through a M_{l-1} + b M_l - a b numbers, one for each of two subspaces
    less their common part.

    Assumptions: linear network without bias, layers dense or restricted as convolutions are, last layer dense; any
    weights. ``sizes``, ``layer_parameters``, ``residual_rank`` s and ``input_rank`` r as in ``deep_convolutional``.

    Reference: none in print. Where layers have few parameters it is below the sum of the bounds of both parts, which
    Singh, Hofmann & Schoelkopf 2023, Section 6, give, and the linear small LeNets of cnn/lenet reach it.

    Three inputs, two positions of one filter of two taps, one output: all four parameters.

    >>> loss_column_upper_bounds((3, 2, 1), (2, 2))
    (2, 2)
    >>> loss_column_upper_bounds((25, 32, 16, 12, 4), (72, 512, 192, 48))
    (72, 176, 96, 48)
    """
    units = checked_widths(sizes)
    parameters = tuple(checked_count("layer_parameters", count, at_least=1) for count in layer_parameters)
    must = "layer_parameters must hold one number per layer"
    require(len(parameters) == len(units) - 1, must, f"got {len(parameters)} for {len(units) - 1} layers")
    rank = checked_input_rank(units, units[0] if input_rank is None else input_rank)
    residual = generic_residual_rank(rank, units[-1]) if residual_rank is None else residual_rank
    residual = checked_residual_rank(residual, min(rank, units[-1]), "the smaller of input rank and outputs")
    entering = (rank, *units[1:])
    columns = []
    for layer, own in enumerate(parameters, start=1):
        behind, arriving = min(entering[layer:]), min(residual, *entering[:layer])
        felt = behind * entering[layer - 1] + arriving * entering[layer] - behind * arriving
        columns.append(min(own, felt))
    return tuple(columns)
