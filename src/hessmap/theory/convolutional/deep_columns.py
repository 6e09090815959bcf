"""Functional and loss Hessian of deep linear convolutional networks: bounds from the columns of single layers.

Notation of ``filter_chains`` and ``deep_law``: vertices 0, .., n, m_v channels, t(i, j) taps, R(i, j) the
dimension of what the layers between two vertices compute. Layer l leads from vertex a = l - 1 to b = l. A and B are
what the layers after and before it compute, A' and B' their changes, of which there are R(b, n) and R(0, a) dimensions.
The block column of layer l is the map from a change D of its weights to the forms <Omega, A' D B> and <Omega, A D B'>;
the outer-product Hessian adds A D B itself.

All bounds are conjectures. Each has a derivation beside it, but no full proof; none was
below the exact rank (study cnn/deep-law). They are for generic weights and Omega, at which the ranks are largest.

A theorem gives directions of a single layer in the kernel of the loss Hessian.

Notation of ``filter_chains``: layer l leads from vertex a = l - 1 to b = l. Cut the chain at vertices u <= a and w >=
b. A is what leads from b to w and B what leads from u to a, matrices of polynomials; P_c are polynomials with c
coefficients. A change D of the layer is not seen if A D B = 0 (no output changes) and if Z(A' D B) = Z(A D B') = 0
for all changes A' and B', Z the residual seen between u and w (no gradient changes). What follows counts such D from
below; so all weights, residuals and inputs have at least as many, because the dimension of a kernel only grows in
limits. Proof: research/docs/convolutional.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
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
    balanced_degrees,
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

__all__ = [
    "functional_column_upper_bounds",
    "functional_upper_bound",
    "layer_kernel_dimensions",
    "layer_upper_bounds",
    "loss_kernel_upper_bound",
    "loss_upper_bound",
]


def functional_upper_bound(chain: FilterChain | ImageChain) -> int:
    """The functional Hessian has at most the sum of the ranks of its block columns.

    Args:
        chain: The chain of filters.

    Returns:
        The upper bound.

    Notes:
        Not always equal: channels 3-3-5 with kernels 1-2 on 6 inputs and one output have columns of rank 9, 30 and 25,
        all they can have, and a functional Hessian of rank 63. (Singh, Hofmann & Schoelkopf 2023 take the columns for
        mutually orthogonal, by observation, and add their ranks.)

    Example:
        >>> functional_upper_bound(FilterChain(channels=(1, 1, 1), kernels=(2, 2)))
        4
    """
    return sum(functional_column_upper_bounds(chain))


def loss_upper_bound(chain: FilterChain | ImageChain) -> int:
    """The loss Hessian: at most the sum of ``layer_upper_bounds``, and of both parts minus the shared gradient.

    Args:
        chain: The chain of filters.

    Returns:
        The upper bound.

    Example:
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

    Args:
        chain: The chain of filters.

    Returns:
        One bound per layer.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Formula: the least of m_b m_u t(u, b) + R(u, a) - m_u^2 over u <= a and m_a m_w t(a, w) + R(b, w) - m_w^2 over w
        >= b; u = a and w = b give the parameters p_l of the layer. Only free u and w count, m_u <= m_v t(u, v) for the
        vertices v between u and a, and alike w. For stride 1 and m_u < m_a rounding can take away more
        (``_rounded_bounds``).

        If vertex a has more channels than g = min over u < a of m_u t(u, a), the same with g of them is a bound too,
        each of the others adding min(g, min over w >= b of m_w t(a, w)); likewise vertex b. Of the first and the last
        layer no more is seen than if all others were merged to one: ``one_layer.loss_rank`` less the other layer's
        column. And of every layer no more than ``loss_kernel_upper_bound`` leaves, which is a theorem.

        Derivation: if D B_{a<-u} = 0, B_{a<-u} what leads from vertex u to a, then A D B = 0 and all that is left of a
        change B' is that of B_{a<-u}, of R(u, a) dimensions, the m_u^2 changes B_{a<-u} g not counted. Of more than g
        channels all but g can be made zero in B by the gauge; D at the others only meets their own changes B'.

    Example:
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

    Args:
        chain: The chain of filters.

    Returns:
        One bound per layer.

    Notes:
        Formula: at most out + in - shared, where with x(s) = min(m_n t(s, n), min over u <= a of m_u t(u, s)), s >= b,
            out = F(b), F(v) = min(m_v x(v), m_v m_w t(v, w) + F(w) - m_w^2 over free w > v), and at most R(b, n);
            in  = the same from the input's side, y(s) for x(s); there is no out for the last layer, no in for the
            first; shared = 1; for one tap the square of min(m_a, m_b, x(b), y(a)); for two, if m_a = m_b, that number;
            for
                stride 1 also the forms at points (``shared_forms``).
        Vertices a and b with too many channels are treated as there.

        Derivation: out counts the forms <Omega, A' D B>. For A' = dV C, V merged from all layers after a vertex s, row
        by row these are forms of K t(s, n) numbers dV, and of rows C D B among m_u t(u, s) for every u. Shared is
        <Omega, A D B>, which A' = A and B' = B both tell, and all <Omega, A g D B> = <Omega, A D h B> besides.

        Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 6, bounds it by the Toeplitz matrices. The study
        cnn/deep-law says how often either is reached.

    Example:
        One filter of two taps on three inputs and one output: each layer tells all of the other.

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


Degrees = dict[int, int]


def loss_kernel_upper_bound(chain: FilterChain) -> int:
    """The loss Hessian has at most rank p - sum_l kappa_l, kappa_l the ``layer_kernel_dimensions``.

    Args:
        chain: The chain of filters.

    Returns:
        The upper bound.

    Notes:
        Theorem for all weights, residuals and inputs. For stride 1 it is the rank of nearly every network tried, and
        together with ``deep_columns.layer_upper_bounds`` of every one.

    Example:
        Two layers of one filter, three taps each, nothing is lost.

        >>> loss_kernel_upper_bound(FilterChain(channels=(1, 1, 1), kernels=(3, 3)))
        6
        >>> loss_kernel_upper_bound(FilterChain(channels=(1, 3, 3, 1), kernels=(4, 4, 4)))
        54
    """
    return chain.num_parameters - sum(layer_kernel_dimensions(chain))


@lru_cache(maxsize=64)
def layer_kernel_dimensions(chain: FilterChain) -> tuple[int, ...]:
    """kappa_l, layer by layer: how many directions of a layer are at least unseen by the loss Hessian.

    Args:
        chain: The chain of filters.

    Returns:
        One dimension per layer.

    Notes:
        Formula: the largest over the cuts u, w, with k the taps of the layer, e_j the degrees of the m_b - m_w
        generators of the kernel of A (as equal as can be, of sum m_w (t(b, w) - 1)), f_i alike those of the m_a - n of
        B, of
            sum (k - e_j - f_i)+  +  max over J, I of  [sum_J rows(e_j) + sum_I columns(f_i) - sum (e_j + f_i - k)+],
        the last sum over all pairs with j in J or i in I. rows(e) counts rows of D B in P_{c - e} that Z does not see,
        columns(f) columns of A D: numbers of coefficients less numbers of conditions. Strides before the layer split B
        into n = m_u times phases columns; a layer with a stride of its own is only cut at u = a, where B = 1.

    Example:
        Three filters of four taps, one input and one output channel: 4 directions with A D = D B = 0, one more on each
        side.

        >>> layer_kernel_dimensions(FilterChain(channels=(1, 3, 3, 1), kernels=(4, 4, 4)))
        (0, 6, 0)
    """
    layers = range(chain.num_layers)
    return tuple(max(map(_unseen, _cuts(chain, layer)), default=0) for layer in layers)


@dataclass(frozen=True)
class _Cut:
    """A layer between u and w. ``columns`` of D B, the longest with ``taps``, ``shorter`` of them with one tap less."""

    kernel: int
    outputs: int
    reach: int  # taps from b to w
    columns: int
    taps: int
    shorter: int
    row_degrees: Degrees  # e_j, with how many j have it
    column_degrees: Degrees  # f_i

    def unseen_rows(self, degree: int) -> int:
        """dim {v in the sum of the P_{y_c - degree}: Z(x^i v) = 0 for all outputs and shifts}, at least."""
        length = self.taps - degree
        conditions = self.outputs * (self.taps + self.reach - length)
        return max(0, self.columns * length - self.shorter - conditions) if length > 0 else 0

    def unseen_columns(self, degree: int) -> int:
        """The same for columns of A D with ``outputs`` entries in P_{k + reach - 1 - degree}."""
        length = self.kernel + self.reach - 1 - degree
        conditions = self.columns * (self.taps + self.reach - length) - self.shorter
        return max(0, self.outputs * length - conditions) if length > 0 else 0


def _unseen(cut: _Cut) -> int:
    rows, columns = list(cut.row_degrees.items()), list(cut.column_degrees.items())
    both = sum(many * more * max(0, cut.kernel - e - f) for e, many in rows for f, more in columns)
    best = 0
    for in_rows, in_columns in product(product((0, 1), repeat=len(rows)), product((0, 1), repeat=len(columns))):
        found = sum(many * cut.unseen_rows(e) for chosen, (e, many) in zip(in_rows, rows, strict=True) if chosen)
        found += sum(
            many * cut.unseen_columns(f) for chosen, (f, many) in zip(in_columns, columns, strict=True) if chosen
        )
        found -= sum(
            many * more * max(0, e + f - cut.kernel)
            for chosen, (e, many) in zip(in_rows, rows, strict=True)
            for also, (f, more) in zip(in_columns, columns, strict=True)
            if chosen or also
        )
        best = max(best, found)
    return both + best


def _cuts(chain: FilterChain, layer: int) -> Iterator[_Cut]:
    """All cuts that can lose something: narrower vertices on one side at least."""
    a, b, kernel, stride = layer, layer + 1, chain.kernels[layer], chain.strides[layer]
    starts = [(*_phases(chain.channels[a], kernel, stride), Degrees())]
    if stride == 1:
        for u in _narrower(chain.channels[a::-1]):
            columns, taps, shorter = _phases(
                chain.channels[a - u], _span(chain, a - u, a), prod(chain.strides[a - u : a])
            )
            if columns < chain.channels[a]:
                degrees = _balanced(columns * (taps - 1) - shorter, chain.channels[a] - columns)
                starts.append((columns, taps + kernel - 1, shorter, degrees))
    for w in (0, *_narrower(chain.channels[b:])):
        outputs, reach = chain.channels[b + w], _span(chain, b, b + w)
        rows = _balanced(outputs * (reach - 1), chain.channels[b] - outputs)
        for columns, taps, shorter, degrees in starts:
            if rows or degrees:
                yield _Cut(kernel, outputs, reach, columns, taps, shorter, rows, degrees)


def _narrower(channels: tuple[int, ...]) -> list[int]:
    """Places of vertices with fewer channels than all before them: a wider one behind lets no less through."""
    found, least = [], channels[0]
    for place, width in enumerate(channels):
        if width < least:
            found.append(place)
            least = width
    return found


def _phases(channels: int, taps: int, stride: int) -> tuple[int, int, int]:
    """Taps that fall into classes modulo the stride: how many columns, the most taps, how many have one less.

    >>> _phases(3, taps=5, stride=2)
    (6, 3, 3)
    """
    shorter = channels * (-taps % stride) if taps >= stride else 0
    return channels * min(stride, taps), -(-taps // stride), shorter


def _span(chain: FilterChain, first: int, last: int) -> int:
    """Positions of one vertex between the first and the last that a position of another looks at."""
    length = 1
    for kernel, stride in zip(chain.kernels[first:last][::-1], chain.strides[first:last][::-1], strict=True):
        length = (length - 1) * stride + kernel
    return length


def _balanced(total: int, parts: int) -> Degrees:
    """Numbers as equal as can be with a given sum, each with how often it occurs.

    >>> _balanced(7, 3)
    {2: 2, 3: 1}
    """
    if parts <= 0:
        return {}
    return {degree: many for degree, many in balanced_degrees(total, parts) if many}
