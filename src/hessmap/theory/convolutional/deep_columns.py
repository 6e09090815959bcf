"""Functional and loss Hessian of deep linear convolutional networks: bounds by what each layer can tell of others.

Notation of ``filter_chains`` and ``deep_law``: vertices 0, .., n, m_v channels, t(i, j) taps, R(i, j) the
dimension of what the layers between two vertices compute. Layer l leads from vertex a = l - 1 to b = l. A and B are
what the layers after and before it compute, A' and B' their changes, of which there are R(b, n) and R(0, a) dimensions.
The block column of layer l is the map from a change D of its weights to the forms <Omega, A' D B> and <Omega, A D B'>;
the outer-product Hessian adds A D B itself.

Kind of truth of all bounds: conjectures. Each has the derivation that is said with it, but no full proof; none was
below the exact rank (study cnn/deep-law). They are for generic weights and Omega, at which the ranks are largest.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hessmap.errors import require
from hessmap.theory.convolutional import one_layer
from hessmap.theory.convolutional.chains import (
    NO_LIMIT,
    ChainTables,
    FilterChain,
    ImageChain,
    Integers,
    chain_tables,
    mirror,
    sum_over_balanced,
)
from hessmap.theory.convolutional.deep_bounds import gauge_forms, point_forms
from hessmap.theory.convolutional.deep_law import (
    dimensions_from,
    dimensions_to,
    merged_network,
    outer_product_rank,
    product_dimensions,
)
from hessmap.theory.convolutional.layer_kernels import layer_kernel_dimensions


def functional_upper_bound(chain: FilterChain | ImageChain) -> int:
    """The functional Hessian has at most the sum of the ranks of its block columns.

    Not always equal: channels 3-3-5 with kernels 1-2 on 6 inputs and one output have columns of rank 9, 30 and 25, all
    they can have, and a functional Hessian of rank 63. (Singh, Hofmann & Schoelkopf 2023 take the columns for mutually
    orthogonal, by observation, and add their ranks.)

    >>> functional_upper_bound(FilterChain(channels=(1, 1, 1), kernels=(2, 2)))
    4
    """
    return sum(functional_column_upper_bounds(chain))


def loss_upper_bound(chain: FilterChain | ImageChain) -> int:
    """The loss Hessian: at most the sum of ``layer_upper_bounds``, and of both parts but for the gradient they share.

    The gradient is a row of both: <Omega, A D B> for D in the outer-product part, and of the functional one because
    scaling another layer changes nothing but the scale.

    >>> loss_upper_bound(FilterChain(channels=(1, 1, 1), kernels=(2, 2)))
    4
    """
    both = outer_product_rank(chain) + functional_upper_bound(chain) - 1
    return min(sum(layer_upper_bounds(chain)), both)


@lru_cache(maxsize=64)
def layer_upper_bounds(chain: FilterChain | ImageChain) -> tuple[int, ...]:
    """All that the loss Hessian sees of the changes of one layer, layer by layer.

    Formula: the least of m_b m_u t(u, b) + R(u, a) - m_u^2 over u <= a and m_a m_w t(a, w) + R(b, w) - m_w^2 over
    w >= b; u = a and w = b give the parameters p_l of the layer. Only free u and w count, m_u <= m_v t(u, v) for the
    vertices v between u and a, and alike w. For stride 1 and m_u < m_a rounding can take away more
    (``_rounded_bounds``).

    If vertex a has more channels than g = min over u < a of m_u t(u, a), the same with g of them is a bound too, each
    of the others adding min(g, min over w >= b of m_w t(a, w)); likewise vertex b. Of the first and the last layer no
    more is seen than if all others were merged to one: ``one_layer.loss_rank`` less the other layer's column. And of
    every layer no more than ``layer_kernels`` leave, which is a theorem.

    Derivation: if D B_{a<-u} = 0, B_{a<-u} what leads from vertex u to a, then A D B = 0 and all that is left of a
    change B' is that of B_{a<-u}, of R(u, a) dimensions, the m_u^2 changes B_{a<-u} g not counted. Of more than g
    channels all but g can be made zero in B by the gauge; D at the others only meets their own changes B'.

    >>> layer_upper_bounds(FilterChain(channels=(2, 5, 4, 3), kernels=(2, 3, 3)))
    (20, 48, 36)
    """
    must, remedy = "the functional Hessian needs at least two layers", "With one layer it is zero"
    require(chain.num_layers >= 2, must, f"got {chain.num_layers}", remedy)
    tables = chain_tables(chain)
    wide, narrow, added = _layers(tables)
    is_rounded = chain.has_balanced_degrees
    seen = np.minimum(_layer_bounds(wide, is_rounded), _layer_bounds(narrow, is_rounded) + added)
    ends = {0: _end_bound(chain, 1), chain.num_layers - 1: _end_bound(chain, chain.num_layers - 1)}
    found = (min(int(bound), ends.get(layer, NO_LIMIT)) for layer, bound in enumerate(seen))
    if isinstance(chain, ImageChain):
        return tuple(found)
    unseen = zip(chain.layer_parameters, layer_kernel_dimensions(chain), strict=True)
    return tuple(min(bound, weights - lost) for bound, (weights, lost) in zip(found, unseen, strict=True))


@lru_cache(maxsize=64)
def functional_column_upper_bounds(chain: FilterChain | ImageChain) -> tuple[int, ...]:
    """The block column of each layer of the functional Hessian: ``layer_upper_bounds``, or what both sides tell of it.

    Formula: at most out + in - shared, where with x(s) = min(m_n t(s, n), min over u <= a of m_u t(u, s)), s >= b,
        out = F(b), F(v) = min(m_v x(v), m_v m_w t(v, w) + F(w) - m_w^2 over free w > v), and at most R(b, n);
        in  = the same from the input's side, y(s) for x(s); there is no out for the last layer, no in for the first;
        shared = 1; for one tap the square of min(m_a, m_b, x(b), y(a)); for two, if m_a = m_b, that number; for
            stride 1 also the forms at points (``shared_forms``).
    Vertices a and b with too many channels are treated as there.

    Derivation: out counts the forms <Omega, A' D B>. For A' = dV C, V merged from all layers after a vertex s, row by
    row these are forms of K t(s, n) numbers dV, and of rows C D B among m_u t(u, s) for every u. Shared is
    <Omega, A D B>, which A' = A and B' = B both tell, and all <Omega, A g D B> = <Omega, A D h B> besides.

    Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 6, bounds it by the Toeplitz matrices. The
    study cnn/deep-law says how often either is reached.

    By hand for one filter of two taps on three inputs and one output: each layer tells all of the other.

    >>> functional_column_upper_bounds(FilterChain(channels=(1, 1, 1), kernels=(2, 2)))
    (2, 2)
    """
    whole = layer_upper_bounds(chain)
    _, narrow, added = _layers(chain_tables(chain))
    by_others = _bounds_by_others(narrow, np.array(chain.kernels), chain.has_balanced_degrees) + added
    return tuple(min(bound, int(others)) for bound, others in zip(whole, by_others, strict=True))


class _Layers(NamedTuple):
    """All layers of a chain, a table ``to`` R(u, a) and one ``out`` R(b, w), and the channels at their two ends.

    ``start`` and ``end`` are the channels of a and of b by layer: the chain's own, or no more than are fed.
    """

    tables: ChainTables
    start: Integers
    end: Integers
    to: Integers
    out: Integers

    @property
    def mirror_image(self) -> _Layers:
        """The same read from the output: layers in reverse order, their ends exchanged."""
        return _Layers(self.tables.mirror_image, self.end[::-1], self.start[::-1], mirror(self.out), mirror(self.to))


@lru_cache(maxsize=64)
def _layers(tables: ChainTables) -> tuple[_Layers, _Layers, Integers]:
    """The layers as they are; with no more channels at their ends than are fed; what the channels left out add."""
    channels, dimensions = tables.channels, product_dimensions(tables)
    by_input, by_output = tables.fed_from_input[0], tables.fed_from_output[:, -1]
    start, end = np.minimum(channels, by_input), np.minimum(channels, by_output)
    beside = np.minimum(by_input, by_output)
    added = ((channels - start) * beside)[:-1] + ((channels - end) * beside)[1:]
    wide = _Layers(tables, channels[:-1], channels[1:], dimensions, dimensions)
    narrow = _Layers(tables, start[:-1], end[1:], dimensions_to(tables, start), dimensions_from(tables, end))
    return wide, narrow, added


def _layer_bounds(layers: _Layers, is_rounded: bool) -> Integers:
    """By layer the least bound over the vertices u up to a, and w from b on."""
    from_input, from_output = (_bounds_past_vertices(view, is_rounded) for view in (layers, layers.mirror_image))
    return np.minimum(from_input, from_output[::-1])


def _bounds_past_vertices(layers: _Layers, is_rounded: bool) -> Integers:
    """By layer the least bound over the vertices u up to a: m_b m_u t(u, b) + R(u, a) - m_u^2, or a rounded one."""
    tables, last = layers.tables, layers.tables.last
    u, a = np.arange(last)[:, None], np.arange(last)
    taps = tables.taps[:-1, :-1]
    channels = np.where(u == a, layers.start, tables.channels[:-1, None])
    counted = layers.end * channels * tables.taps[:-1, 1:] + layers.to[:-1, :-1] - channels**2
    fed = np.minimum(tables.fed_from_output[u, np.maximum(a - 1, u)], layers.start * taps)
    bounds = np.where((u == a) | ((u < a) & (channels <= fed)), counted, NO_LIMIT)
    if is_rounded:
        is_narrower = (u < a) & (channels < layers.start)
        bounds = np.minimum(bounds, np.where(is_narrower, _rounded_bounds(layers, is_narrower), NO_LIMIT))
    least: Integers = bounds.min(axis=0)
    return least


def _rounded_bounds(layers: _Layers, is_narrower: Integers) -> Integers:
    """The same, degree by degree, with the layers from u to a merged and fewer channels at u than at a.

    The rows D with D B_{a<-u} = 0 are spanned by m_a - m_u of degrees x as equal as can be, of sum m_u (t(u, a) - 1);
    of the changes of B_{a<-u} each of them meets m_u (t(u, a) + x), against m_b (k - x)+ changes D along it.
    """
    tables, width, filters = layers.tables, layers.start, layers.end
    from_u, taps = tables.channels[:-1, None], np.maximum(tables.taps[:-1, :-1], 1)
    kernel = tables.taps.diagonal(1)

    def missed(degree: Any) -> Any:
        along = filters * np.maximum(kernel - degree, 0)
        return np.maximum(along - from_u * (taps + degree), 0)

    parts = np.where(is_narrower, width - from_u, 1)
    seen: Integers = filters * width * kernel - sum_over_balanced(missed, from_u * (taps - 1), parts)
    return seen


def _end_bound(chain: FilterChain | ImageChain, vertex: int) -> int:
    """All that can be seen of the first or last layer, whose hidden end is ``vertex``, with all others merged."""
    if isinstance(chain, ImageChain) or not chain.is_gapless(vertex, chain.num_layers):
        return NO_LIMIT
    merged = merged_network(chain, 0, vertex, chain.num_layers)
    return one_layer.loss_rank(merged) - one_layer.functional_rank(merged) // 2


def _bounds_by_others(layers: _Layers, kernels: Integers, has_points: bool) -> Integers:
    """By layer out + in - shared, and no more than its parameters; no out for the last layer, no in for the first."""
    outgoing, incoming = _outgoing_bounds(layers), _outgoing_bounds(layers.mirror_image)[::-1]
    met = np.minimum(_row_ranks(layers).diagonal(1), _row_ranks(layers.mirror_image).diagonal(1)[::-1])
    bounds = outgoing + incoming
    shared = gauge_forms(layers.start, layers.end, kernels, met)
    if has_points:
        ends, tangents = (layers.start, layers.end), (layers.to, layers.out)
        shared = np.maximum(shared, point_forms(layers.tables, ends, tangents, kernels))
    bounds[1:-1] -= shared[1:-1]
    least: Integers = np.minimum(bounds, layers.start * layers.end * kernels)
    return least


def _row_ranks(layers: _Layers) -> Integers:
    """By layer and vertex behind it x(s): how many independent forms one row of numbers at the vertex can meet."""
    tables = layers.tables
    a = np.arange(tables.last)[:, None]
    spans = tables.channels[:-1, None] * tables.taps[:-1]
    before = np.minimum.accumulate(np.vstack([np.full_like(spans[:1], NO_LIMIT), spans[:-1]]), axis=0)
    own = layers.start[:, None] * tables.taps[:-1]
    found = np.minimum(np.minimum(before, own), tables.channels[-1] * tables.taps[:, -1])
    return np.where(np.arange(tables.last + 1) > a, found, NO_LIMIT)


def _outgoing_bounds(layers: _Layers) -> Integers:
    """By layer out: the least F(b), and R(b, n); nothing for the last layer."""
    tables, last, met = layers.tables, layers.tables.last, _row_ranks(layers)
    channels, dtype = tables.channels, tables.channels.dtype
    found = np.zeros((last, last + 1), dtype=dtype)
    for vertex in reversed(range(1, last)):
        a, later = np.arange(vertex), slice(vertex + 1, last)
        own = np.where(a == vertex - 1, layers.end[vertex - 1], channels[vertex])[:, None]
        m, weights = channels[later], own * tables.taps[vertex, later]
        fed = np.minimum(met[:vertex, later], tables.fed_from_output[later, -1])
        past = np.where(m <= np.minimum(weights, fed), m * weights + found[:vertex, later] - m**2, NO_LIMIT)
        through = past.min(axis=1, initial=NO_LIMIT)
        found[:vertex, vertex] = np.minimum(own[:, 0] * met[:vertex, vertex], through)
    least = np.minimum(found.diagonal(1), layers.out[1:, -1])
    return np.where(np.arange(last) == last - 1, 0, least)
