"""The rank formulas as Singh, Hofmann & Schoelkopf 2023 print them, where they differ from the right ones.

Use ``one_layer`` and ``locally_connected`` to predict. Each docstring ends with a counterexample: the printed value
first, the right one second.
"""

from __future__ import annotations

from collections.abc import Iterable

from hessmap.theory.convolutional.one_layer import OneHiddenConvolution
from hessmap.theory.data_ranks import checked_widths
from hessmap.theory.fully_connected import linear


def theorem_6(sizes: Iterable[int], layer_parameters: Iterable[int]) -> int:
    """Functional Hessian of any depth: at most the sum over layers of min(dense formula, p_l).

    ``sizes`` and ``layer_parameters`` as in ``deep_bounds``, which sharpens it: no layer has a block of its own,
    so column l has rank at most p - p_l as well.

    >>> from hessmap.theory.convolutional import deep_bounds
    >>> sizes, parameters = deep_bounds.convolutional_sizes(9, (1, 2), (4,), outputs=4)
    >>> theorem_6(sizes, parameters), sum(deep_bounds.functional_column_upper_bounds(sizes, parameters))
    (56, 16)
    """
    units = checked_widths(sizes)
    residual = linear.generic_residual_rank(units[0], units[-1])
    dense = linear.functional_column_ranks(units, units[0], residual)
    return sum(min(column, own) for column, own in zip(dense, layer_parameters, strict=True))


def theorem_7(net: OneHiddenConvolution) -> int:
    """Outer-product Hessian: at most min(K d0, q (k + K d1 - q)), q = min(k, K d1, m), and called exact in Section 6.1.

    For m0 channels d0 is read as m0 d0 and k as m0 k. An upper bound; not an equality.

    >>> from hessmap.theory.convolutional import one_layer as convolutional
    >>> net = OneHiddenConvolution(9, kernel=8, filters=3, outputs=5)
    >>> theorem_7(net), convolutional.outer_product_rank(net)
    (45, 44)
    """
    rows = net.outputs * net.positions
    q = min(net.num_taps, rows, net.filters)
    return min(net.outputs * net.channels * net.input_length, q * (net.num_taps + rows - q))


def theorem_8(net: OneHiddenConvolution) -> int:
    """Functional Hessian: at most 2 m min(k, K d1); for m0 channels k is read as m0 k.

    Exact for a generic residual of rank K; too large for one of lower rank.

    >>> from hessmap.theory.convolutional import one_layer as convolutional
    >>> net = OneHiddenConvolution(3, kernel=3, filters=1, outputs=2)
    >>> theorem_8(net), convolutional.functional_rank(net, residual_rank=1)
    (4, 2)
    """
    return 2 * net.filters * min(net.num_taps, net.outputs * net.positions)


def fact_13(patches: int, patch_size: int, filters: int, outputs: int) -> int:
    """Locally connected, loss Hessian: both bounds of Theorem 9 added, less t (2 s - q) q.

    Here q = min(k, K, m), s = min(k, K). Right for a generic residual; fails for one of lower rank.

    >>> from hessmap.theory import locally_connected
    >>> fact_13(1, 2, 2, 2), locally_connected.locally_connected_ranks(1, 2, 2, 2, residual_ranks=[0]).loss
    (8, 4)
    """
    q, s = min(patch_size, outputs, filters), min(patch_size, outputs)
    return patches * (q * (patch_size + outputs - q) + 2 * filters * s - (2 * s - q) * q)


def fact_14(patches: int, patch_size: int, filters: int, outputs: int) -> int:
    """Shared weights, loss Hessian: both bounds of Theorem 10 added, less (2 s - q) q with q = min(k, K, K t).

    Here s = min(k, K t), and Theorem 10's own q = min(k, K t, m). Fails where the two q differ.

    >>> from hessmap.theory import locally_connected
    >>> fact_14(1, 2, 1, 4), locally_connected.shared_weights_ranks(1, 2, 1, 4).loss
    (5, 6)
    """
    stacked = outputs * patches
    theorem_q, s = min(patch_size, stacked, filters), min(patch_size, stacked)
    printed_q = min(patch_size, outputs, stacked)
    both = theorem_q * (patch_size + stacked - theorem_q) + 2 * filters * s
    return both - (2 * s - printed_q) * printed_q
