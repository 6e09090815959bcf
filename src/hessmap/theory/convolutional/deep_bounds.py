"""Upper bounds for deep linear networks whose layers are tied or sparse versions of dense ones, as convolutions are.

Shared by every function here: ``sizes`` are the numbers of units (m0 d0, m_1 d_1, .., m_L d_L, K), channels times
positions, of input, hidden layers and output; ``layer_parameters`` the free parameters p_1, .., p_{L+1} of the layers
(m_l m_{l-1} k_l for a convolution); ``input_rank`` r (m0 d0 in general), ``residual_rank`` s the rank of
sum residual x^T. Under cross-entropy K - 1 stands for K. q = min(r, m_1 d_1, .., m_L d_L, K), q^ = min(q, s).
Each bound is the dense formula, cut where the layer has fewer parameters. All are valid for every weight.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hessmap.errors import require
from hessmap.theory.conditions import checked_count, checked_input_rank, checked_residual_rank, checked_widths
from hessmap.theory.fully_connected import linear
from hessmap.theory.fully_connected.linear import generic_residual_rank


def outer_product_upper_bound(
    sizes: Iterable[int], layer_parameters: Iterable[int], input_rank: int | None = None
) -> int:
    """The outer-product Hessian has rank at most min(p, q (r + K - q)).

    Assumptions: linear network, no bias, last layer dense; valid for all weights.

    Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 5; its d0 is m0 d0 for m0 input channels, and r for inputs of
    rank r.

    Three inputs, two positions of one filter of two taps, one output: min(4, 1 (3 + 1 - 1)).

    >>> outer_product_upper_bound((3, 2, 1), (2, 2))
    3
    """
    units, parameters = _checked_sizes(sizes, layer_parameters)
    rank = units[0] if input_rank is None else input_rank
    return min(sum(parameters), linear.outer_product_rank(units, rank))


def functional_column_upper_bounds(
    sizes: Iterable[int],
    layer_parameters: Iterable[int],
    residual_rank: int | None = None,
    input_rank: int | None = None,
) -> tuple[int, ...]:
    """The block column of layer l of the functional Hessian has rank at most min(dense formula, p_l, p - p_l).

    The dense formula is q^ (m_{l-1} d_{l-1} + m_l d_l - q^), with s for the input and for the output size.
    The functional Hessian has rank at most the sum of the columns: their ranks add up, though from three layers on
    the columns are not orthogonal, as the paper says they are.

    Assumptions: as in ``outer_product_upper_bound``.

    Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 6; sharpened by p - p_l, since no layer has a block of its own.

    >>> functional_column_upper_bounds((3, 2, 1), (2, 2))
    (2, 2)
    """
    units, parameters = _checked_sizes(sizes, layer_parameters)
    rank = units[0] if input_rank is None else input_rank
    residual = linear.generic_residual_rank(rank, units[-1]) if residual_rank is None else residual_rank
    dense = linear.functional_column_ranks(units, rank, residual)
    total = sum(parameters)
    return tuple(min(column, own, total - own) for column, own in zip(dense, parameters, strict=True))


def loss_upper_bound(
    sizes: Iterable[int],
    layer_parameters: Iterable[int],
    residual_rank: int | None = None,
    input_rank: int | None = None,
) -> int:
    """The loss Hessian has rank at most min(p, dense formula, H_o + H_f - 1), the latter two by the bounds above.

    The dense formula (``linear.loss_rank``) bounds it because the Hessian of tied layers is R^T H R, H that of the
    dense network with the same weights and R linear. The one comes off the sum because the functional Hessian maps the
    parameters themselves to a multiple of the gradient, which lies in the range of both parts; without residual the
    loss Hessian is the outer product.

    Assumptions: as in ``outer_product_upper_bound``; a residual of rank s.

    Reference: sharpens Singh, Hofmann & Schoelkopf 2023, Section 6, there the sum of both bounds.

    >>> loss_upper_bound((3, 2, 1), (2, 2))
    4
    """
    units, parameters = _checked_sizes(sizes, layer_parameters)
    rank = units[0] if input_rank is None else input_rank
    residual = linear.generic_residual_rank(rank, units[-1]) if residual_rank is None else residual_rank
    outer = outer_product_upper_bound(units, parameters, rank)
    functional = sum(functional_column_upper_bounds(units, parameters, residual, rank))
    if functional == 0:
        return outer
    return min(sum(parameters), linear.loss_rank(units, rank, residual), outer + functional - 1)


def hidden_units_upper_bound(
    sizes: Iterable[int], residual_rank: int | None = None, input_rank: int | None = None
) -> int:
    """For s = q the functional Hessian has rank at most 2 q M - (L - 1) q^2, M = sum over hidden layers of m_l d_l.

    Assumptions: as in ``outer_product_upper_bound``, and s = q: no hidden layer is a bottleneck for the residual. L
    counts the hidden layers. Refused otherwise, for it fails there: 2-1-2 with s = 2 has rank 4, the formula gives 2.

    Reference: Singh, Hofmann & Schoelkopf 2023, Corollary 12; valid and rarely tight.

    >>> hidden_units_upper_bound((3, 2, 1))
    4
    """
    units = checked_widths(sizes)
    rank = units[0] if input_rank is None else input_rank
    residual = linear.generic_residual_rank(rank, units[-1]) if residual_rank is None else residual_rank
    q = linear.bottleneck_rank(units, rank)
    must, remedy = "residual rank and bottleneck rank must be equal", "Use functional_column_upper_bounds"
    require(residual == q, must, f"they are {residual} and {q}", remedy)
    return 2 * q * sum(units[1:-1]) - (len(units) - 3) * q**2


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
    weights. ``sizes``, ``layer_parameters``, ``residual_rank`` s and ``input_rank`` r as above.

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


def convolutional_sizes(
    input_length: int,
    channels: Iterable[int],
    kernels: Iterable[int],
    outputs: int,
    strides: Iterable[int] | None = None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """``sizes`` and ``layer_parameters`` of 1D convolutions without padding and a dense last layer.

    ``channels`` are m0, m_1, .., m_L, the inputs' first; one of ``kernels`` and ``strides`` (1 unless given) for each
    convolution.

    >>> convolutional_sizes(9, (1, 2, 3), (4, 1), outputs=4)
    ((9, 12, 18, 4), (8, 6, 72))
    """
    channels, kernels = tuple(channels), tuple(kernels)
    steps = (1,) * len(kernels) if strides is None else tuple(strides)
    must = "every convolution needs one kernel, one stride and its channels"
    got = f"got {len(channels)} channels (inputs' included), {len(kernels)} kernels, {len(steps)} strides"
    require(len(channels) - 1 == len(kernels) == len(steps) > 0, must, got)
    lengths = [checked_count("input_length", input_length, at_least=1)]
    for kernel, stride in zip(kernels, steps, strict=True):
        must = "a kernel must fit into its input"
        require(1 <= kernel <= lengths[-1], must, f"kernel is {kernel}, input length {lengths[-1]}")
        lengths.append((lengths[-1] - kernel) // checked_count("stride", stride, at_least=1) + 1)
    units = [number * length for number, length in zip(channels, lengths, strict=True)]
    shared = [before * after * kernel for (before, after), kernel in zip(pairwise(channels), kernels, strict=True)]
    return (*units, outputs), (*shared, units[-1] * outputs)


def _checked_sizes(sizes: Iterable[int], layer_parameters: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    units = checked_widths(sizes)
    parameters = tuple(checked_count("layer_parameters", count, at_least=1) for count in layer_parameters)
    must = "layer_parameters must hold one number per layer"
    require(len(parameters) == len(units) - 1, must, f"got {len(parameters)} for {len(units) - 1} layers")
    return units, parameters
