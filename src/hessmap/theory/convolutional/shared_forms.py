"""What the layers before and behind a layer of a linear convolutional network tell of it twice.

The block column of a layer of H_f has out + in forms <Omega, A' D B> and <Omega, A D B'> of a change D of its
weights; forms that are both do not count twice. <Omega, A D B> always is (A' = A and B' = B). Notation of
``deep_columns``.
"""

from __future__ import annotations

import numpy as np

from hessmap.theory.convolutional.chain_tables import ChainTables, Integers


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

    >>> from hessmap.theory.convolutional.chain_tables import chain_tables
    >>> from hessmap.theory.convolutional.deep_law import product_dimensions
    >>> from hessmap.theory.convolutional.filter_chains import FilterChain
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
