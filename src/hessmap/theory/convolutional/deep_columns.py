"""Functional and loss Hessian of deep linear convolutional networks: bounds by what each layer can tell of others.

Notation of ``filter_chains`` and ``deep_convolutional_law``: vertices 0, .., n, m_v channels, t(i, j) taps, R(i, j) the
dimension of what the layers between two vertices compute. Layer l leads from vertex a = l - 1 to b = l. A and B are
what the layers after and before it compute, A' and B' their changes, of which there are R(b, n) and R(0, a) dimensions.
The block column of layer l is the map from a change D of its weights to the forms <Omega, A' D B> and <Omega, A D B'>;
the outer-product Hessian adds A D B itself.

Kind of truth of all bounds: derived as said in each, and never below the exact rank (study cnn/deep-law). They are for
generic weights and Omega, at which the ranks are largest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hessmap.errors import require
from hessmap.theory.convolutional import one_layer as convolutional
from hessmap.theory.convolutional.deep_law import merged_network, outer_product_rank, product_dimension
from hessmap.theory.convolutional.filter_chains import FilterChain
from hessmap.theory.convolutional.one_layer import sum_over_balanced


def functional_upper_bound(chain: FilterChain) -> int:
    """The functional Hessian has at most the sum of the ranks of its block columns.

    Not always equal: channels 3-3-5 with kernels 1-2 on 6 inputs and one output have columns of rank 9, 30 and 25, all
    they can have, and a functional Hessian of rank 63. (Singh, Hofmann & Schoelkopf 2023 take the columns for mutually
    orthogonal, by observation, and add their ranks.)

    >>> functional_upper_bound(FilterChain(channels=(1, 1, 1), kernels=(2, 2)))
    4
    """
    return sum(functional_column_upper_bounds(chain))


def loss_upper_bound(chain: FilterChain) -> int:
    """The loss Hessian: at most the sum of ``layer_upper_bounds``, and of both parts but for the gradient they share.

    The gradient is a row of both: <Omega, A D B> for D in the outer-product part, and of the functional one because
    scaling another layer changes nothing but the scale.

    >>> loss_upper_bound(FilterChain(channels=(1, 1, 1), kernels=(2, 2)))
    4
    """
    both = outer_product_rank(chain) + functional_upper_bound(chain) - 1
    return min(sum(layer_upper_bounds(chain)), both)


def layer_upper_bounds(chain: FilterChain) -> tuple[int, ...]:
    """All that the loss Hessian sees of the changes of one layer, layer by layer.

    Formula: the least of m_b m_u t(u, b) + R(u, a) - m_u^2 over u <= a and m_a m_w t(a, w) + R(b, w) - m_w^2 over
    w >= b; u = a and w = b give the parameters p_l of the layer. Only free u and w count, m_u <= m_v t(u, v) for the
    vertices v between u and a, and alike w. For stride 1 and m_u < m_a rounding can take away more (``_rounded_past``).

    If vertex a has more channels than g = min over u < a of m_u t(u, a), the same with g of them is a bound too, each
    of the others adding min(g, min over w >= b of m_w t(a, w)); likewise vertex b. Of the first and the last layer no
    more is seen than if all others were merged to one: ``convolutional.loss_rank`` less the other layer's column.

    Derivation: if D B_{a<-u} = 0, B_{a<-u} what leads from vertex u to a, then A D B = 0 and all that is left of a
    change B' is that of B_{a<-u}, of R(u, a) dimensions, the m_u^2 changes B_{a<-u} g not counted. Of more than g
    channels all but g can be made zero in B by the gauge; D at the others only meets their own changes B'.

    >>> layer_upper_bounds(FilterChain(channels=(2, 5, 4, 3), kernels=(2, 3, 3)))
    (20, 48, 36)
    """
    must, remedy = "the functional Hessian needs at least two layers", "With one layer it is zero"
    require(chain.num_layers >= 2, must, f"got {chain.num_layers}", remedy)
    first, *between, last = (_seen(chain, layer) for layer in range(chain.num_layers))
    return min(first, _end_seen(chain, 1)), *between, min(last, _end_seen(chain, chain.num_layers - 1))


def functional_column_upper_bounds(chain: FilterChain) -> tuple[int, ...]:
    """The block column of each layer of the functional Hessian: ``layer_upper_bounds``, or what both sides tell of it.

    Formula: at most out + in - shared, where with x(s) = min(m_n t(s, n), min over u <= a of m_u t(u, s)), s >= b,
        out = F(b), F(v) = min(m_v x(v), m_v m_w t(v, w) + F(w) - m_w^2 over free w > v), and at most R(b, n);
        in  = the same from the input's side, y(s) for x(s); there is no out for the last layer, no in for the first;
        shared = 1; for one tap the square of min(m_a, m_b, x(b), y(a)); for two, if m_a = m_b, that number.
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
    return tuple(min(bound, _told_by_others(chain, layer)) for layer, bound in enumerate(whole))


@dataclass(frozen=True)
class _Reading:
    """A chain read from its input or, mirrored, from its output: vertices counted from the end where one begins."""

    chain: FilterChain
    is_mirrored: bool = False

    @property
    def mirrored(self) -> _Reading:
        return _Reading(self.chain, not self.is_mirrored)

    @property
    def last(self) -> int:
        return self.chain.num_layers

    def channels(self, vertex: int) -> int:
        return self.chain.channels[self.last - vertex if self.is_mirrored else vertex]

    def taps(self, first: int, last: int) -> int:
        return self._of_pair(self.chain.taps, first, last)

    def dimension(self, first: int, last: int) -> int:
        return self._of_pair(lambda i, j: product_dimension(self.chain, i, j), first, last)

    def _of_pair(self, function: Callable[[int, int], int], first: int, last: int) -> int:
        return function(self.last - last, self.last - first) if self.is_mirrored else function(first, last)

    def span(self, vertex: int, targets: range) -> int:
        """The least m_v t over other vertices: how many independent channels at most a vertex can have beside them."""
        pairs = ((other, *sorted((vertex, other))) for other in targets)
        spans = [self.channels(other) * self.taps(first, last) for other, first, last in pairs]
        return min(spans, default=self.chain.num_parameters)


def _seen(chain: FilterChain, layer: int) -> int:
    """The bound of ``layer_upper_bounds``, of all channels or of those that count and what the others add."""
    narrow, added = _narrowed(chain, layer)
    return min(_seen_past_vertices(chain, layer), _seen_past_vertices(narrow, layer) + added)


def _end_seen(chain: FilterChain, vertex: int) -> int:
    """All that can be seen of the first or last layer, whose hidden end is ``vertex``, with all others merged."""
    if not chain.is_gapless(vertex, chain.num_layers):
        return chain.num_parameters
    merged = merged_network(chain, 0, vertex, chain.num_layers)
    return convolutional.loss_rank(merged) - convolutional.functional_rank(merged) // 2


def _seen_past_vertices(chain: FilterChain, layer: int) -> int:
    forward = _Reading(chain)
    return min(_seen_past(forward, layer), _seen_past(forward.mirrored, chain.num_layers - 1 - layer))


def _seen_past(reading: _Reading, layer: int) -> int:
    """The least bound over the vertices u up to a: m_b m_u t(u, b) + R(u, a) - m_u^2, or ``_rounded_past``."""
    a, b = layer, layer + 1
    counted = [
        reading.channels(b) * reading.channels(u) * reading.taps(u, b)
        + reading.dimension(u, a)
        - reading.channels(u) ** 2
        for u in range(a + 1)
        if reading.channels(u) <= reading.span(u, range(u + 1, a + 1))
    ]
    has_stride = max(reading.chain.strides) > 1
    rounded = [_rounded_past(reading, layer, u) for u in range(a) if reading.channels(u) < reading.channels(a)]
    return min(counted if has_stride else counted + rounded)


def _rounded_past(reading: _Reading, layer: int, u: int) -> int:
    """The same, degree by degree, with the layers from u to a merged and fewer channels at u than at a.

    The rows D with D B_{a<-u} = 0 are spanned by m_a - m_u of degrees x as equal as can be, of sum m_u (t(u, a) - 1);
    of the changes of B_{a<-u} each of them meets m_u (t(u, a) + x), against m_b (k - x)+ changes D along it.
    """
    a, b = layer, layer + 1
    from_u, width, filters = reading.channels(u), reading.channels(a), reading.channels(b)
    taps, kernel = reading.taps(u, a), reading.taps(a, b)

    def missed(degree: int) -> int:
        along = filters * max(kernel - degree, 0)
        return max(along - from_u * (taps + degree), 0)

    return filters * width * kernel - sum_over_balanced(missed, from_u * (taps - 1), width - from_u)


def _told_by_others(chain: FilterChain, layer: int) -> int:
    """out + in - shared, with no more channels at both ends of the layer than its neighbours can feed."""
    a, b, last = layer, layer + 1, chain.num_layers
    narrow, added = _narrowed(chain, layer)
    reading = _Reading(narrow)
    told = _told(reading, layer) if b < last else 0
    told += _told(reading.mirrored, last - b) if a > 0 else 0
    if a > 0 and b < last:
        x, y = _met(reading, a, b), _met(reading.mirrored, last - b, last - a)
        told -= _shared(narrow.channels[a], narrow.channels[b], chain.kernels[layer], min(x, y))
    return min(told, narrow.layer_parameters[layer]) + added


def _shared(before: int, after: int, kernel: int, met: int) -> int:
    """The forms <Omega, A g D B> = <Omega, A D h B>: g Z = Z h, Z the ``after`` x ``before`` matrix <Omega, A . B>.

    For one tap Z is a matrix of numbers, for two a pencil: a square one is diagonal in some basis. Else g = h = 1.
    """
    if kernel == 1:
        return min(before, after, met) ** 2
    return before if kernel == 2 and before == after else 1


def _narrowed(chain: FilterChain, layer: int) -> tuple[FilterChain, int]:
    """The chain with fewer channels at the ends of a layer, and what the channels that are left out add."""
    forward, channels, added = _Reading(chain), list(chain.channels), 0
    for view, place in ((forward, layer), (forward.mirrored, chain.num_layers - 1 - layer)):
        fed = view.span(place, range(place))
        wide = view.channels(place) - fed
        if wide > 0:
            added += wide * min(fed, view.span(place, range(place + 1, view.last + 1)))
            channels[view.last - place if view.is_mirrored else place] = fed
    return replace(chain, channels=tuple(channels)), added


def _met(reading: _Reading, a: int, vertex: int) -> int:
    """x(vertex): how many independent forms one row of numbers at a vertex after the layer can meet."""
    last = reading.last
    return min(reading.channels(last) * reading.taps(vertex, last), reading.span(vertex, range(a + 1)))


def _told(reading: _Reading, layer: int) -> int:
    """out: the least F(b), and R(b, n)."""
    a, b, last = layer, layer + 1, reading.last

    def least(vertex: int) -> int:
        own = reading.channels(vertex)
        bound = own * _met(reading, a, vertex)
        for later in range(vertex + 1, last):
            m = reading.channels(later)
            weights = own * reading.taps(vertex, later)
            if m <= min(weights, _met(reading, a, later), reading.span(later, range(later + 1, last + 1))):
                bound = min(bound, m * weights + least(later) - m**2)
        return bound

    return min(least(b), reading.dimension(b, last))
