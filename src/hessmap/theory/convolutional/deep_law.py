"""The outer-product rank of deep linear convolutional networks (1D, no padding, no bias): proved, or conjectured.

Singh, Hofmann & Schoelkopf (2023) bound it by the dense network of the Toeplitz matrices. A convolutional network is
more: a product of polynomial matrices (``filter_chains``), of which two things are true.

1. Merging: what the layers between vertices i and j compute together, one filter layer of t(i, j) taps computes too.
2. Gauge: at a hidden vertex v, W_{v+1} g^-1 and g W_v compute the same for every invertible m_v x m_v matrix g.

It is proved by cutting the chain at vertices of least width.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from hessmap.theory.convolutional import one_layer
from hessmap.theory.convolutional.chains import NO_LIMIT, ChainTables, FilterChain, ImageChain, Integers, chain_tables
from hessmap.theory.convolutional.one_layer import OneHiddenConvolution, outer_product_ranks

__all__ = [
    "has_law",
    "is_free",
    "merged_network",
    "outer_product_rank",
    "product_dimension",
    "proved_outer_product_rank",
]


def has_law(chain: FilterChain | ImageChain) -> bool:
    """Whether the law and the bounds of ``deep_columns`` are worked out: their work is cubic in the number of layers.

    Args:
        chain: The chain of filters.

    Returns:
        True if so.

    Example:
        Up to 64 layers it takes no time; up to 32 where numbers need more than 64 bits.

        >>> has_law(FilterChain(channels=(2,) * 66, kernels=(3,) * 65))
        False
    """
    return chain.num_layers <= 32 or (chain.num_layers <= 64 and chain_tables(chain).channels.dtype == np.int64)


def outer_product_rank(chain: FilterChain | ImageChain) -> int:
    """The outer-product Hessian has rank R(0, n), the dimension of the set of maps that the network can compute.

    Args:
        chain: The chain of filters.

    Returns:
        The rank.

    Notes:
        Formula, with vertices, channels m_v and taps t(i, j) as in ``FilterChain``: R(i, j) is the least of
            m_i m_j t(i, j)                       what one filter layer computes,
            R(i, v) + R(v, j) - m_v^2             for every free vertex v between i and j,
            the rank of one hidden layer at v     for every v between i and j (``one_layer.outer_product_rank``).
        Free: m_v <= m_u t(u, v) for i <= u < v and m_v <= m_w t(v, w) for v < w <= j. A vertex that is not free is so
        wide that it forbids nothing.

        Conjecture: it held on every network tried (study cnn/deep-law); proved where ``proved_outer_product_rank``
        reaches. That no weights exceed it is proved for stride 1 except for one step: the rank of the Jacobian is at
        most the dimension of the closure of all products; the products of a chain are among those of each merged
        chain; and (A, B) -> A B, of two parts that meet at v, has fibres of dimension m_v^2 where the rows of B are
        independent (for a product at a free v: checked, not proved, where degrees round). The third line only
        differs from the second, for v alone, by rounding.

        Assumptions: generic weights, inputs of full rank. For inputs of rank r it is an upper bound, and so is K r.

        Reference: none in print; Singh, Hofmann & Schoelkopf 2023, Theorem 5, is the bound by the Toeplitz matrices. It
        is not reached by channels 1-1-1, kernels 1-3 on 5 inputs with 3 outputs: rank 11, bound 13.

    Example:
        Scalar polynomials of 2, 2 and 2 coefficients: products are all polynomials of degree 3.

        >>> outer_product_rank(FilterChain(channels=(1, 1, 1, 1), kernels=(2, 2, 2)))
        4
        >>> outer_product_rank(FilterChain(channels=(1, 4, 4, 7), kernels=(10, 2, 2)))
        82
    """
    return product_dimension(chain, 0, chain.num_layers)


def product_dimension(chain: FilterChain | ImageChain, first: int, last: int) -> int:
    """R(first, last): the dimension of what the layers between two vertices compute; m^2 from a vertex to itself.

    Args:
        chain: The chain of filters.
        first: First vertex.
        last: Last vertex.

    Returns:
        The dimension.

    Example:
        The convention R(v, v) = m_v^2, the matrices g of the gauge, lets R(i, v) + R(v, j) - m_v^2 hold for v = i, j.

        >>> product_dimension(FilterChain(channels=(1, 2, 3), kernels=(4, 5)), 1, 1)
        4
    """
    return int(product_dimensions(chain_tables(chain))[first, last])


@lru_cache(maxsize=64)
def product_dimensions(tables: ChainTables) -> Integers:
    """R(i, j) for all pairs of vertices i <= j."""
    return _dimensions(tables, tables.channels, tables.channels, None)


def dimensions_to(tables: ChainTables, channels: Integers) -> Integers:
    """R(i, j) with other ``channels`` at j, by vertex, and the chain's own at all vertices before."""
    return _dimensions(tables, tables.channels, channels, "last")


def dimensions_from(tables: ChainTables, channels: Integers) -> Integers:
    """R(i, j) with other ``channels`` at i, by vertex, and the chain's own at all vertices behind."""
    return _dimensions(tables, channels, tables.channels, "first")


def _dimensions(
    tables: ChainTables, first: Integers, last: Integers, changed: Literal["first", "last"] | None
) -> Integers:
    """R(i, j) with ``first`` channels at i and ``last`` channels at j: neighbours, then pairs ever further apart."""
    size = tables.last + 1
    found = np.zeros((size, size), dtype=tables.channels.dtype)
    np.fill_diagonal(found, (last if changed == "last" else first) ** 2)
    before = product_dimensions(tables) if changed == "last" else found
    after = product_dimensions(tables) if changed == "first" else found
    for span in range(1, size):
        i = np.arange(size - span)[:, None]
        j, v = i + span, i + np.arange(1, span)
        parts = before[i, v] + after[v, j] - tables.channels[v] ** 2
        merged = _merged_ranks(tables, first, last, (i, v, j))
        least = np.where(_is_free(tables, first, last, (i, v, j)), np.minimum(parts, merged), merged)
        one_layer = first[i] * last[j] * tables.taps[i, j]
        found[i, j] = np.minimum(one_layer, least.min(axis=1, initial=NO_LIMIT, keepdims=True))
    return found


Places = tuple[Integers, Integers, Integers]


def _is_free(tables: ChainTables, first: Integers, last: Integers, places: Places) -> npt.NDArray[np.bool_]:
    """Whether no channel of v is a combination of the others, seen from i and from j."""
    i, v, j = places
    from_input = np.minimum(tables.fed_from_input[i + 1, v], first[i] * tables.taps[i, v])
    from_output = np.minimum(tables.fed_from_output[v, j - 1], last[j] * tables.taps[v, j])
    found: npt.NDArray[np.bool_] = tables.channels[v] <= np.minimum(from_input, from_output)
    return found


def _merged_ranks(tables: ChainTables, first: Integers, last: Integers, places: Places) -> Integers:
    """The rank of one hidden layer at v, all layers before and behind it merged; no limit where taps have gaps."""
    i, v, j = places
    ranks = outer_product_ranks(
        outputs=last[j],
        positions=tables.taps[v, j],
        filters=tables.channels[v],
        taps=first[i] * tables.taps[i, v],
        phases=first[i] * tables.phases[i, v],
    )
    return np.where(tables.is_gapless[v, j], ranks, NO_LIMIT)


def is_free(chain: FilterChain, vertex: int, first: int, last: int) -> bool:
    """Whether no channel of a vertex is a combination of the others, seen from ``first`` and from ``last``.

    Args:
        chain: The chain of filters.
        vertex: Vertex between them.
        first: First vertex.
        last: Last vertex.

    Returns:
        True if so.

    Example:
        >>> is_free(FilterChain(channels=(1, 3, 1), kernels=(2, 5)), 1, 0, 2)
        False
    """
    tables = chain_tables(chain)
    from_input, from_output = tables.fed_from_input[first, vertex], tables.fed_from_output[vertex, last]
    return bool(chain.channels[vertex] <= min(from_input, from_output))


def merged_network(chain: FilterChain, first: int, vertex: int, last: int) -> OneHiddenConvolution:
    """The layers between two vertices merged to one hidden layer at a third: as many taps, phases and positions.

    Args:
        chain: The chain of filters.
        first: First vertex.
        vertex: Vertex between them.
        last: Last vertex.

    Returns:
        The network of two layers.

    Example:
        >>> merged_network(FilterChain(channels=(1, 2, 3, 4), kernels=(4, 2, 5)), 0, 2, 3)
        OneHiddenConvolution(input_length=9, kernel=5, filters=3, outputs=4, channels=1, stride=1)
    """
    taps, phases, positions = chain.taps(first, vertex), chain.phases(first, vertex), chain.taps(vertex, last)
    return OneHiddenConvolution(
        input_length=(positions - 1) * phases + taps,
        kernel=taps,
        filters=chain.channels[vertex],
        outputs=chain.channels[last],
        channels=chain.channels[first],
        stride=phases,
    )


def proved_outer_product_rank(chain: FilterChain) -> int | None:
    """R(i, j) = R(i, v) + R(v, j) - m_v^2 for every v between i and j that is no wider than any vertex from i to j.

    Args:
        chain: The chain of filters.

    Returns:
        The rank, or None where it is not proved.

    Notes:
        R(i, j) is the dimension of the products of the layers from vertex i to j, and R(0, n) the rank of the
        outer-product Hessian. What is left is known for one layer, m_i m_j k, and for one hidden vertex
        (``one_layer.outer_product_rank``); None where three or more layers are left between vertices that are narrower
        than all inside.

        Theorem, for generic weights, any strides, inputs of full rank. Proof: let A B be the product, A the layers
        behind v, B those before. If dA B + A dB = 0 for tangents dA, dB of the two sets of products, then dA = A G and
        G B = -dB for one matrix G of rational functions, because A has full column rank m_v and B full row rank m_v as
        matrices of rational functions. G has no pole where A has full column rank, none where B has full row rank, and
        for generic weights these two finite sets of exceptions do not meet; at infinity it is bounded, because the last
        taps of A multiply to a matrix of full column rank and dA has no higher degree. So G is constant, one of m_v^2
        matrices; and A G and G B are tangents for each of them (the gauge). research/docs/convolutional.md has every
        step.

        Reference: none in print. It proves the law of ``deep_law`` for these networks.

    Example:
        Scalar filters of 2, 2 and 2 taps have 6 weights, two of which only rescale.

        >>> proved_outer_product_rank(FilterChain(channels=(1, 1, 1, 1), kernels=(2, 2, 2)))
        4
        >>> proved_outer_product_rank(FilterChain(channels=(1, 2, 2, 4), kernels=(3, 3, 5))) is None
        True
    """
    channels = chain.channels
    cuts = _cuts(channels)
    parts = [_uncut_rank(chain, first, last) for first, last in pairwise((0, *cuts, chain.num_layers))]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return sum(known) - sum(channels[vertex] ** 2 for vertex in cuts)


def _cuts(channels: tuple[int, ...]) -> list[int]:
    """The hidden vertices of least width, ends included in the comparison: between two of them nothing is narrower, so
    that a second round finds none but those that tie."""
    least = min(channels)
    return [vertex for vertex in range(1, len(channels) - 1) if channels[vertex] == least]


def _uncut_rank(chain: FilterChain, first: int, last: int) -> int | None:
    if last - first == 1:
        return chain.layer_parameters[first]
    if last - first > 2:
        return None
    kernel, positions, stride = chain.kernels[first], chain.kernels[first + 1], chain.strides[first]
    length = (positions - 1) * stride + kernel
    before, filters, after = chain.channels[first : last + 1]
    return one_layer.outer_product_rank(OneHiddenConvolution(length, kernel, filters, after, before, stride))
