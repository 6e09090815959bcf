"""Upper bounds on the ranks of deep linear convolutional networks, as tied or sparse versions of dense ones.

The block column of a layer of H_f has out + in forms <Omega, A' D B> and <Omega, A D B'> of a change D of its
weights; forms that are both do not count twice. <Omega, A D B> always is (A' = A and B' = B). Notation of
``deep_columns``.

Shared by every function here: ``sizes`` are the numbers of units (m0 d0, m_1 d_1, .., m_L d_L, K), channels times
positions, of input, hidden layers and output; ``layer_parameters`` the free parameters p_1, .., p_{L+1} of the layers
(m_l m_{l-1} k_l for a convolution); ``input_rank`` r (m0 d0 in general), ``residual_rank`` s the rank of
sum residual x^T. Under cross-entropy K - 1 stands for K. q = min(r, m_1 d_1, .., m_L d_L, K), q^ = min(q, s).
Each bound is the dense formula, cut where the layer has fewer parameters. All are valid for every weight.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from hessmap.errors import require
from hessmap.theory.convolutional.chains import ChainTables, Integers
from hessmap.theory.data_ranks import checked_count, checked_input_rank, checked_residual_rank, checked_widths
from hessmap.theory.fully_connected import linear
from hessmap.theory.fully_connected.linear import generic_residual_rank

__all__ = [
    "convolutional_sizes",
    "functional_column_upper_bounds",
    "hidden_units_upper_bound",
    "loss_column_upper_bounds",
    "loss_upper_bound",
    "outer_product_upper_bound",
]


def gauge_forms(before: Integers, after: Integers, kernels: Integers, met: Integers) -> Integers:
    """The forms <Omega, A g D B> = <Omega, A D h B>: g Z = Z h, Z the ``after`` x ``before`` matrix <Omega, A . B>.

    For one tap Z is a matrix of numbers, for two a pencil: a square one is diagonal in some basis. Else g = h = 1.
    """
    numbers = np.minimum(np.minimum(before, after), met) ** 2
    pencils = np.where(before == after, before, 1)
    return np.where(kernels == 1, numbers, np.where(kernels == 2, pencils, 1))


def point_forms(
    tables: ChainTables, ends: tuple[Integers, Integers], tangents: tuple[Integers, Integers], kernels: Integers
) -> Integers:
    """By layer, forms that are told twice because the residual is a sum of few values at points; for stride 1.

    Formula: the largest over vertices u < a and w > b of N - m_b (N - m_w t(b, w))+ - m_a (N - m_u t(u, a))+, where
    N = m_u m_w T / (m_u + m_w), rounded up, T = t(u, w) taps. ``ends`` are m_a and m_b by layer, ``tangents`` R(u, a)
    and R(b, w). u must be no wider than all vertices before it and w than all behind it, all filters from u to a and
    from b to w possible, and N at most the forms of one row and of one column of D.

    Derivation: between u and w the residual is a form Z on m_w x m_u matrices X of T coefficients, and a generic one
    is a sum of N terms c^T X(x) d, points x and vectors c, d (m_w + m_u numbers each). If c^T A'(x) = g c^T A(x) and
    B'(x) d = g B(x) d at every point, with a number g for each, both changes tell the same. Of the N numbers g as
    many are possible as the conditions leave that A' and B' have no more taps than A and B.

    Three taps on 2 to 3 channels, conv-1x6-2x3-3x3-2: N = 4 values, of which two are possible.

    >>> from hessmap.theory.convolutional.chains import chain_tables
    >>> from hessmap.theory.convolutional.deep_law import product_dimensions
    >>> from hessmap.theory.convolutional.chains import FilterChain
    >>> tables = chain_tables(FilterChain(channels=(1, 2, 3, 2), kernels=(3, 3, 2)))
    >>> ends, dimensions = (tables.channels[:-1], tables.channels[1:]), product_dimensions(tables)
    >>> point_forms(tables, ends, (dimensions, dimensions), np.array([3, 3, 2])).tolist()
    [0, 2, 0]
    """
    num_layers, channels, taps = tables.last, tables.channels, tables.taps
    layer, u, w = np.ix_(np.arange(num_layers), np.arange(num_layers), np.arange(num_layers + 1))
    before, after = ends[0][layer], ends[1][layer]
    inputs, outputs = channels[u], channels[w]
    entering, leaving = inputs * taps[u, layer], outputs * taps[layer + 1, w]
    values = inputs * outputs * taps[u, w]
    points = -(-values // (inputs + outputs))
    told = points - after * np.maximum(points - leaving, 0) - before * np.maximum(points - entering, 0)
    is_possible = (tangents[0][u, layer] == before * entering) & (tangents[1][layer + 1, w] == after * leaving)
    is_least = (inputs == np.minimum.accumulate(channels)[u]) & (
        outputs == np.minimum.accumulate(channels[::-1])[::-1][w]
    )
    rows = np.minimum(tables.fed_from_input[0, layer + 1], before * kernels[layer])
    of_column = np.minimum(tables.fed_from_output[layer, -1], after * kernels[layer])
    is_told = (u < layer) & (w > layer + 1) & is_possible & is_least & (points <= np.minimum(rows, of_column))
    found: Integers = np.where(is_told, told, 0).max(axis=(1, 2))
    return found


def outer_product_upper_bound(
    sizes: Iterable[int], layer_parameters: Iterable[int], input_rank: int | None = None
) -> int:
    """The outer-product Hessian has rank at most min(p, q (r + K - q)).

    Args:
        sizes: Channels times positions at every vertex, inputs first, outputs last.
        layer_parameters: Parameters of each layer on which the loss depends.
        input_rank: Rank r of the inputs. Defaults to their number.

    Returns:
        The upper bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Assumptions: linear network, no bias, last layer dense; valid for all weights.

        Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 5; its d0 is m0 d0 for m0 input channels, and r for inputs
        of rank r.

    Example:
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

    Args:
        sizes: Channels times positions at every vertex, inputs first, outputs last.
        layer_parameters: Parameters of each layer on which the loss depends.
        residual_rank: Rank s of the residual moment sum residual x^T. Defaults to the generic value.
        input_rank: Rank r of the inputs. Defaults to their number.

    Returns:
        One bound per layer.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        The dense formula is q^ (m_{l-1} d_{l-1} + m_l d_l - q^), with s for the input and for the output size. The
        functional Hessian has rank at most the sum of the columns: their ranks add up, though from three layers on the
        columns are not orthogonal, as the paper says they are.

        Assumptions: as in ``outer_product_upper_bound``.

        Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 6; sharpened by p - p_l, since no layer has a block of its
        own.

    Example:
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

    Args:
        sizes: Channels times positions at every vertex, inputs first, outputs last.
        layer_parameters: Parameters of each layer on which the loss depends.
        residual_rank: Rank s of the residual moment sum residual x^T. Defaults to the generic value.
        input_rank: Rank r of the inputs. Defaults to their number.

    Returns:
        The upper bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        The dense formula (``linear.loss_rank``) bounds it because the Hessian of tied layers is R^T H R, H that of the
        dense network with the same weights and R linear. The one comes off the sum because the functional Hessian maps
        the parameters themselves to a multiple of the gradient, which lies in the range of both parts; without residual
        the loss Hessian is the outer product.

        Assumptions: as in ``outer_product_upper_bound``; a residual of rank s.

        Reference: sharpens Singh, Hofmann & Schoelkopf 2023, Section 6, there the sum of both bounds.

    Example:
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

    Args:
        sizes: Channels times positions at every vertex, inputs first, outputs last.
        residual_rank: Rank s of the residual moment sum residual x^T. Defaults to the generic value.
        input_rank: Rank r of the inputs. Defaults to their number.

    Returns:
        The upper bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Assumptions: as in ``outer_product_upper_bound``, and s = q: no hidden layer is a bottleneck for the residual. L
        counts the hidden layers. Refused otherwise, for it fails there: 2-1-2 with s = 2 has rank 4, the formula gives
        2.

        Reference: Singh, Hofmann & Schoelkopf 2023, Corollary 12; valid and rarely tight.

    Example:
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

    Args:
        sizes: Channels times positions at every vertex, inputs first, outputs last.
        layer_parameters: Parameters of each layer on which the loss depends.
        residual_rank: Rank s of the residual moment sum residual x^T. Defaults to the generic value.
        input_rank: Rank r of the inputs. Defaults to their number.

    Returns:
        One bound per layer.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Here a = min(M_l, .., M_L) bounds the rank of the layers behind, b = min(s, M_0, .., M_{l-1}) that of the
        residual's moment as it arrives, and M_0 is r. The loss Hessian has rank at most the sum of its columns.

        A change D of W_l is felt through A D (A the product behind: outputs and earlier layers) and through D b_l (b_l
        the moment that arrives: later layers), and so through a M_{l-1} + b M_l - a b numbers, one for each of two
        subspaces less their common part.

        Assumptions: linear network without bias, layers dense or restricted as convolutions are, last layer dense; any
        weights. ``sizes``, ``layer_parameters``, ``residual_rank`` s and ``input_rank`` r as above.

        Reference: none in print. Where layers have few parameters it is below the sum of the bounds of both parts,
        which Singh, Hofmann & Schoelkopf 2023, Section 6, give, and the linear small LeNets of cnn/lenet reach it.

    Example:
        Three inputs, two positions of one filter of two taps, one output: all four parameters.

        >>> loss_column_upper_bounds((3, 2, 1), (2, 2))
        (2, 2)
        >>> loss_column_upper_bounds((25, 32, 16, 12, 4), (72, 512, 192, 48))
        (72, 176, 96, 48)
    """
    units = checked_widths(sizes)
    parameters = tuple(checked_count("layer_parameters", count, at_least=1) for count in layer_parameters)
    must = "layer_parameters must contain one number per layer"
    require(len(parameters) == len(units) - 1, must, f"got {len(parameters)} for {len(units) - 1} layers")
    rank = checked_input_rank(units[0], units[0] if input_rank is None else input_rank)
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

    Args:
        input_length: Length d0 of the input.
        channels: Channels of the input and after each convolution.
        kernels: Taps of each convolution.
        outputs: Number of outputs K in which the loss curves.
        strides: Strides of the convolutions. Defaults to 1 each.

    Returns:
        Sizes of the vertices and parameters of the layers.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``channels`` are m0, m_1, .., m_L, the inputs' first; one of ``kernels`` and ``strides`` (default: 1) for
        each convolution.

    Example:
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
    must = "layer_parameters must contain one number per layer"
    require(len(parameters) == len(units) - 1, must, f"got {len(parameters)} for {len(units) - 1} layers")
    return units, parameters
