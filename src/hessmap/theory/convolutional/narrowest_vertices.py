"""The outer-product rank of deep linear convolutional networks where it is proved: cut at vertices of least width."""

from __future__ import annotations

from itertools import pairwise

from hessmap.theory.convolutional.chains import FilterChain
from hessmap.theory.convolutional.one_layer import OneHiddenConvolution, outer_product_rank


def proved_outer_product_rank(chain: FilterChain) -> int | None:
    """R(i, j) = R(i, v) + R(v, j) - m_v^2 for every v between i and j that is no wider than any vertex from i to j.

    R(i, j) is the dimension of the products of the layers from vertex i to j, and R(0, n) the rank of the outer-product
    Hessian. What is left is known for one layer, m_i m_j k, and for one hidden vertex
    (``one_layer.outer_product_rank``); None where three or more layers are left between vertices that are narrower than
    all inside.

    Kind of truth: theorem, for generic weights, any strides, inputs of full rank. Proof: let A B be the product, A the
    layers behind v, B those before. If dA B + A dB = 0 for tangents dA, dB of the two sets of products, then dA = A G
    and G B = -dB for one matrix G of rational functions, because A has full column rank m_v and B full row rank m_v as
    matrices of rational functions. G has no pole where A has full column rank, none where B has full row rank, and for
    generic weights these two finite sets of exceptions do not meet; at infinity it is bounded, because the last taps of
    A multiply to a matrix of full column rank and dA has no higher degree. So G is constant, one of m_v^2 matrices; and
    A G and G B are tangents for each of them (the gauge). research/docs/convolutional.md has every step.

    Reference: none in print. It proves the law of ``deep_law`` for these networks.

    By hand: scalar filters of 2, 2 and 2 taps have 6 weights, two of which only rescale.

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
    return outer_product_rank(OneHiddenConvolution(length, kernel, filters, after, before, stride))
