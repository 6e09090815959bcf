"""Directions of a single layer that the loss Hessian of a linear convolutional network does not see: a theorem.

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

from hessmap.theory.convolutional.chains import FilterChain, balanced_degrees

Degrees = dict[int, int]


def loss_kernel_upper_bound(chain: FilterChain) -> int:
    """The loss Hessian has at most rank p - sum_l kappa_l, kappa_l the ``layer_kernel_dimensions``.

    Kind of truth: a theorem for all weights, residuals and inputs. For stride 1 it is the rank of nearly every network
    tried, and together with ``deep_columns.layer_upper_bounds`` of every one.

    By hand: two layers of one filter, three taps each, nothing is lost.

    >>> loss_kernel_upper_bound(FilterChain(channels=(1, 1, 1), kernels=(3, 3)))
    6
    >>> loss_kernel_upper_bound(FilterChain(channels=(1, 3, 3, 1), kernels=(4, 4, 4)))
    54
    """
    return chain.num_parameters - sum(layer_kernel_dimensions(chain))


@lru_cache(maxsize=64)
def layer_kernel_dimensions(chain: FilterChain) -> tuple[int, ...]:
    """kappa_l, layer by layer: how many directions of a layer are at least unseen by the loss Hessian.

    Formula: the largest over the cuts u, w, with k the taps of the layer, e_j the degrees of the m_b - m_w generators
    of the kernel of A (as equal as can be, of sum m_w (t(b, w) - 1)), f_i alike those of the m_a - n of B, of
        sum (k - e_j - f_i)+  +  max over J, I of  [sum_J rows(e_j) + sum_I columns(f_i) - sum (e_j + f_i - k)+],
    the last sum over all pairs with j in J or i in I. rows(e) counts rows of D B in P_{c - e} that Z does not see,
    columns(f) columns of A D: numbers of coefficients less numbers of conditions. Strides before the layer split B
    into n = m_u times phases columns; a layer with a stride of its own is only cut at u = a, where B = 1.

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
