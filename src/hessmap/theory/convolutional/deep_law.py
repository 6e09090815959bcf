"""The outer-product rank of deep linear convolutional networks (1D, no padding, no bias): an exact law, conjectured.

Singh, Hofmann & Schoelkopf (2023) bound it by the dense network of the Toeplitz matrices. A convolutional network is
more: a product of polynomial matrices (``filter_chains``), of which two things are true.

1. Merging: what the layers between vertices i and j compute together, one filter layer of t(i, j) taps computes too.
2. Gauge: at a hidden vertex v, W_{v+1} g^-1 and g W_v compute the same for every invertible m_v x m_v matrix g.
"""

from __future__ import annotations

from functools import cache

from hessmap.theory.convolutional import one_layer as convolutional
from hessmap.theory.convolutional.filter_chains import FilterChain
from hessmap.theory.convolutional.one_layer import OneHiddenConvolution


def outer_product_rank(chain: FilterChain) -> int:
    """The outer-product Hessian has rank R(0, n), the dimension of the set of maps that the network can compute.

    Formula, with vertices, channels m_v and taps t(i, j) as in ``FilterChain``: R(i, j) is the least of
        m_i m_j t(i, j)                       what one filter layer computes,
        R(i, v) + R(v, j) - m_v^2             for every free vertex v between i and j,
        the rank of one hidden layer at v     for every v between i and j (``convolutional.outer_product_rank``).
    Free: m_v <= m_u t(u, v) for i <= u < v and m_v <= m_w t(v, w) for v < w <= j. A vertex that is not free is so wide
    that it forbids nothing.

    Kind of truth: a conjecture as an equality: it held on every network tried (study cnn/deep-law). That no weights
    exceed it is proved for stride 1: the rank of the Jacobian is at most the dimension of the closure of all products;
    the products of a chain are among those of each merged chain; and (A, B) -> A B, of two parts that meet at v, has
    fibres of dimension m_v^2 where the rows of B are independent (for a product at a free v: checked, not proved, where
    degrees round). The third line only differs from the second, for v
    alone, by rounding. With one hidden layer V W, m_0 < m, the rows v with v W = 0 have m - m_0 generators of degrees
    b_i as equal as can be, of sum m_0 (k - 1); what W adds to the dV W splits into parts of m (b_i - 1) and is seen in
    K (b_i - d_1)+ dimensions: the lesser of both for each i. For m_0 >= m alike.

    Assumptions: generic weights, inputs of full rank. For inputs of rank r it is an upper bound, and so is K r.

    Reference: none in print; Singh, Hofmann & Schoelkopf 2023, Theorem 5, is the bound by the Toeplitz matrices. It
    is not reached by channels 1-1-1, kernels 1-3 on 5 inputs with 3 outputs: rank 11, bound 13.

    By hand for scalar polynomials of 2, 2 and 2 coefficients: products are all polynomials of degree 3.

    >>> outer_product_rank(FilterChain(channels=(1, 1, 1, 1), kernels=(2, 2, 2)))
    4
    >>> outer_product_rank(FilterChain(channels=(1, 4, 4, 7), kernels=(10, 2, 2)))
    82
    """
    return product_dimension(chain, 0, chain.num_layers)


@cache
def product_dimension(chain: FilterChain, first: int, last: int) -> int:
    """R(first, last): the dimension of what the layers between two vertices compute; m^2 from a vertex to itself.

    The convention R(v, v) = m_v^2, the matrices g of the gauge, lets R(i, v) + R(v, j) - m_v^2 hold for v = i, j.

    >>> product_dimension(FilterChain(channels=(1, 2, 3), kernels=(4, 5)), 1, 1)
    4
    """
    if first == last:
        return chain.channels[first] ** 2
    dimension = chain.weights(first, last)
    for vertex in range(first + 1, last):
        if chain.is_gapless(vertex, last):
            dimension = min(dimension, convolutional.outer_product_rank(merged_network(chain, first, vertex, last)))
        if is_free(chain, vertex, first, last):
            parts = product_dimension(chain, first, vertex) + product_dimension(chain, vertex, last)
            dimension = min(dimension, parts - chain.channels[vertex] ** 2)
    return dimension


def is_free(chain: FilterChain, vertex: int, first: int, last: int) -> bool:
    """Whether no channel of a vertex is a combination of the others, seen from ``first`` and from ``last``."""
    channels, own = chain.channels, chain.channels[vertex]
    from_input = all(own <= channels[u] * chain.taps(u, vertex) for u in range(first, vertex))
    return from_input and all(own <= channels[w] * chain.taps(vertex, w) for w in range(vertex + 1, last + 1))


def merged_network(chain: FilterChain, first: int, vertex: int, last: int) -> OneHiddenConvolution:
    """The layers between two vertices merged to one hidden layer at a third: as many taps, phases and positions.

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
