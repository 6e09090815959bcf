"""A linear convolutional network as a chain of filters: a product of polynomial matrices.

Read from the outputs to the inputs, a row of numbers over the positions of a layer is a row of polynomials, and a
convolution of m_{l-1} channels to m_l filters of k taps multiplies it by an m_l x m_{l-1} matrix of polynomials with k
coefficients. The dense layer is no exception: K filters that are as long as their input. So the network is the product
V(x) W_L(x) .. W_1(x); a stride s of layer l puts x^s for x in all layers after it. Padding would cut the product.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod

from hessmap.errors import require
from hessmap.theory.conditions import checked_count


@dataclass(frozen=True)
class FilterChain:
    """Vertices 0, .., n with ``channels`` m_0, .., m_n; layer l leads from vertex l - 1 to l by filters of k_l taps.

    Vertex 0 is the input and vertex n the output, at one position: m_n are the outputs that the loss can tell apart
    (one less than there are under cross-entropy), and the last kernel is the number of positions before it.

    >>> chain = FilterChain(channels=(1, 2, 3, 4), kernels=(4, 2, 5))
    >>> chain.num_layers, chain.layer_parameters, chain.taps(0, 3), chain.taps(1, 3)
    (3, (8, 12, 60), 9, 6)
    """

    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        strides = self.strides or (1,) * len(self.kernels)
        object.__setattr__(self, "strides", strides)
        must = "a chain of filters needs one kernel and one stride for each pair of neighbours among the channels"
        got = f"got {len(self.channels)} channels, {len(self.kernels)} kernels, {len(strides)} strides"
        require(len(self.channels) - 1 == len(self.kernels) == len(strides) > 0, must, got)
        for name in ("channels", "kernels", "strides"):
            for count in getattr(self, name):
                checked_count(name, count, at_least=1)

    @property
    def num_layers(self) -> int:
        return len(self.kernels)

    @property
    def layer_parameters(self) -> tuple[int, ...]:
        pairs = zip(pairwise(self.channels), self.kernels, strict=True)
        return tuple(before * after * kernel for (before, after), kernel in pairs)

    @property
    def num_parameters(self) -> int:
        return sum(self.layer_parameters)

    @property
    def has_balanced_degrees(self) -> bool:
        """Whether kernels of its matrices of polynomials have degrees as equal as can be: for stride 1."""
        return max(self.strides) == 1

    def taps(self, first: int, last: int) -> int:
        """At how many positions of vertex ``first`` one position of vertex ``last`` looks: t(first, last)."""
        return prod(count for _, count in self._progressions[first][last - first])

    def weights(self, first: int, last: int) -> int:
        """The weights of one filter layer that would replace all layers between two vertices."""
        return self.channels[first] * self.channels[last] * self.taps(first, last)

    def phases(self, first: int, last: int) -> int:
        """How many of these taps differ modulo the stride from one vertex to the other."""
        stride = prod(self.strides[first:last])
        return prod(min(count, stride // step) for step, count in self._progressions[first][last - first])

    def is_gapless(self, first: int, last: int) -> bool:
        """Whether one position of vertex ``last`` looks at neighbouring positions of vertex ``first``."""
        found = self._progressions[first][last - first]
        return not found or (len(found) == 1 and found[0][0] == 1)

    @cached_property
    def _progressions(self) -> tuple[tuple[Progressions, ...], ...]:
        """By first vertex and by how many layers further the positions that are seen, without listing them."""
        table: list[list[Progressions]] = [[()] for _ in range(self.num_layers + 1)]
        for last in range(1, self.num_layers + 1):
            found: Progressions = ()
            for first in reversed(range(last)):
                found = _seen_through(found, self.kernels[first], self.strides[first])
                table[first].append(found)
        return tuple(map(tuple, table))


Progressions = tuple[tuple[int, int], ...]


def _seen_through(seen: Progressions, kernel: int, stride: int) -> Progressions:
    """The positions that a layer looks at for all positions that are looked at behind it.

    ``seen`` are all sums of one term each of some progressions, (step, count) for 0, step, .., (count - 1) step; every
    step divides the next and none reaches it, so that all sums differ. The layer moves each position by its stride and
    adds its taps: one progression more, which joins those that it reaches.

    Two taps at stride 3, over three neighbours: 0, 1, 3, 4, 6, 7. Three taps leave no gap.

    >>> _seen_through(((1, 3),), kernel=2, stride=3), _seen_through(((1, 3),), kernel=3, stride=3)
    (((1, 2), (3, 3)), ((1, 9),))
    """
    joined: list[tuple[int, int]] = []
    for step, count in ((1, kernel), *((stride * step, count) for step, count in seen)):
        if count == 1:
            continue
        if joined and step <= joined[-1][0] * joined[-1][1]:
            below, length = joined[-1]
            joined[-1] = below, step // below * (count - 1) + length
        else:
            joined.append((step, count))
    return tuple(joined)


def convolutional_chain(
    input_length: int,
    channels: Iterable[int],
    kernels: Iterable[int],
    outputs: int,
    strides: Iterable[int] | None = None,
) -> FilterChain:
    """The chain of convolutions without padding over ``input_length`` positions and a dense last layer.

    >>> convolutional_chain(9, (1, 2, 3), (4, 2), outputs=4)
    FilterChain(channels=(1, 2, 3, 4), kernels=(4, 2, 5), strides=(1, 1, 1))
    """
    filters, taps = tuple(channels), tuple(kernels)
    steps = (1,) * len(taps) if strides is None else tuple(strides)
    length = checked_count("input_length", input_length, at_least=1)
    for kernel, stride in zip(taps, steps, strict=False):
        require(1 <= kernel <= length, "a kernel must fit into its input", f"kernel is {kernel}, input length {length}")
        length = (length - kernel) // checked_count("stride", stride, at_least=1) + 1
    return FilterChain((*filters, outputs), (*taps, length), (*steps, 1))
