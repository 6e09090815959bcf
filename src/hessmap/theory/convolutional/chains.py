"""Linear convolutional networks as chains of filters: products of polynomial matrices in one or two variables.

Read from the outputs to the inputs, a row of numbers over the positions of a layer is a row of polynomials, and a
convolution of m_{l-1} channels to m_l filters of k taps multiplies it by an m_l x m_{l-1} matrix of polynomials with k
coefficients. The dense layer is no exception: K filters that are as long as their input. So the network is the product
V(x) W_L(x) .. W_1(x); a stride s of layer l puts x^s for x in all layers after it. Padding would cut the product.

The degrees of polynomials in general position are integers of a given sum, as equal as possible.

Mixing the channels of hidden layers lowers the outer-product rank, with padding, bias and stride in any dimension.

At a hidden layer v the weights g W_v, g b_v and W_{v+1} g^-1 compute what W_v, b_v and W_{v+1} do, for every invertible
m_v x m_v matrix g: filters see channels through sums, and zeros of the padding stay zeros. Without padding behind it a
bias b_v can also be moved into the next layer's. These directions change no output, and so are in the kernel of H_o.

Two-dimensional convolutions are polynomials in two variables.

Along either axis a network without padding is a chain of filters (``filter_chains``) with the same channels; what one
position of a vertex looks at is a rectangle, with as many taps as both chains have, multiplied. Merging and gauge
(``deep_law``) hold as they do in one dimension, so the counts of ``deep_law`` and ``deep_columns`` bound the ranks. The
finer counts of one dimension, of degrees that are as equal as can be, have no counterpart.

A chain is stored as tables over all pairs of its vertices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hessmap.errors import require
from hessmap.theory.data_ranks import checked_count

__all__ = [
    "FilterChain",
    "ImageChain",
    "channel_mixing_upper_bound",
    "convolutional_chain",
]


@dataclass(frozen=True)
class FilterChain:
    """Vertices 0, .., n with ``channels`` m_0, .., m_n; layer l leads from vertex l - 1 to l by filters of k_l taps.

    Attributes:
        channels: Channels of the input and after each convolution.
        kernels: Taps of each convolution.
        strides: Strides of the convolutions. Defaults to 1 each.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
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

    Args:
        input_length: Length d0 of the input.
        channels: Channels of the input and after each convolution.
        kernels: Taps of each convolution.
        outputs: Number of outputs K in which the loss curves.
        strides: Strides of the convolutions. Defaults to 1 each.

    Returns:
        The chain of filters, the dense layer as the last one.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
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


def balanced_degrees(total: Any, parts: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """The two degrees of ``parts`` integers of sum ``total`` that differ by at most one, and how many there are of
    each; also of arrays.

    >>> balanced_degrees(7, 3)  # 2, 2 and 3
    ((2, 2), (3, 1))
    """
    low = total // parts
    num_high = total - low * parts
    return (low, parts - num_high), (low + 1, num_high)


def sum_over_balanced(term: Callable[[Any], Any], total: Any, parts: Any) -> Any:
    """The sum of ``term`` over ``balanced_degrees``.

    >>> sum_over_balanced(lambda part: part * part, 7, 3)
    17
    """
    return sum(count * term(degree) for degree, count in balanced_degrees(total, parts))


def channel_mixing_upper_bound(
    channels: Sequence[int],
    layer_parameters: Sequence[int],
    biases: Sequence[bool] = (),
    is_padded: Sequence[bool] = (),
) -> int:
    """The outer-product Hessian of a linear convolutional network has rank at most p - mixing - shifts.

    Args:
        channels: Channels of the input and after each convolution.
        layer_parameters: Parameters of each layer on which the loss depends.
        biases: By layer, whether it has a bias. Defaults to none.
        is_padded: By convolution, whether it is padded. Defaults to ().

    Returns:
        The upper bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``channels`` are m_0, .., m_L and the outputs that the loss can tell apart, ``layer_parameters`` p_1, ..,
        p_{L+1}, those of the dense layer last; ``biases`` say of each layer whether it has a bias, ``is_padded`` of
        each convolution whether it is padded.

        Formula: a bias b_v can be moved where layer v + 1 has a bias too and no padding. in_v are the weights of a
        filter, and its bias if that cannot be moved; out_v the weights of layer v + 1 that leave one channel. Hidden
        layers are fed from the input up to the first with m_v > in_v, and from the output down to the first with m_v >
        out_v. mixing is the sum of m_v^2 over those that are fed from either side; if only one is not, it counts too,
        with m_v^2 - (m_v - in_v)+ (m_v - out_v)+. shifts is the sum of m_v over the hidden layers that are fed from the
        input and whose bias can be moved.

        Proof: the changes (g_l W_l - W_l g_{l-1}) of all g are in the kernel. One that is zero has g_1 W_1 = 0, so g_1
        = 0 if W_1 has independent rows, then nothing is moved from b_1, then g_2 = 0, and so on; likewise from the
        output; a single layer between has g W_v = 0 = W_{v+1} g, of dimension (m_v - in_v)+ (m_v - out_v)+ for generic
        weights. (A bias that can be moved does not count among in_v: g b_v may be just what is moved.
        conv-1x6x3-4x1x3/2-1 with bias has rank 10; counting it would give 9.) A rank that holds for generic weights
        bounds that of all.

        Assumptions: linear network, last layer dense; valid for all weights, inputs and losses.

        Reference: none in print. By hand: 2 filters of 9 taps, 4 positions and 3 outputs have 18 + 24 parameters, less
        the 4 of a 2 x 2 matrix; with a bias in both layers 47, less 4 and 2.

    Example:
        >>> channel_mixing_upper_bound((1, 2, 3), (18, 24))
        38
        >>> channel_mixing_upper_bound((1, 2, 3), (20, 27), biases=(True, True))
        41
    """
    _, *hidden, _ = channels
    count = len(hidden)
    marks = tuple(biases) or (False,) * (count + 1)
    padded = (*(tuple(is_padded) or (False,) * count), False)
    must = "channel mixing needs the parameters, biases and paddings of every layer"
    is_whole = len(layer_parameters) == len(marks) == count + 1 == len(padded)
    require(is_whole, must, f"got {len(layer_parameters)}, {len(marks)} and {len(padded) - 1} for {count} convolutions")
    is_moved = [marks[v] and marks[v + 1] and not padded[v + 1] for v in range(count)]
    entering = [layer_parameters[v] // hidden[v] - is_moved[v] for v in range(count)]
    leaving = [(layer_parameters[v + 1] - marks[v + 1] * channels[v + 2]) // hidden[v] for v in range(count)]
    from_input = _num_fed(hidden, entering)
    from_output = count - _num_fed(hidden[::-1], leaving[::-1])
    unfed = range(from_input, from_output)
    mixing = sum(filters**2 for v, filters in enumerate(hidden) if v not in unfed)
    if len(unfed) == 1:
        v = unfed[0]
        mixing += hidden[v] ** 2 - max(hidden[v] - entering[v], 0) * max(hidden[v] - leaving[v], 0)
    shifts = sum(hidden[v] for v in range(from_input) if is_moved[v])
    return sum(layer_parameters) - mixing - shifts


def _num_fed(hidden: Sequence[int], fed: Sequence[int]) -> int:
    """How many layers come before the first that has more channels than it is fed numbers.

    >>> _num_fed((2, 5, 1), (4, 4, 4))
    1
    """
    return next((place for place, (own, most) in enumerate(zip(hidden, fed, strict=True)) if own > most), len(hidden))


@dataclass(frozen=True)
class ImageChain:
    """The ``rows`` and the ``columns`` of the filters, two chains with the same channels, read as one.

    Attributes:
        rows: The chain along the rows of the image.
        columns: The chain along its columns.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        >>> chain = ImageChain(FilterChain((1, 2, 3), (2, 3)), FilterChain((1, 2, 3), (3, 3)))
        >>> chain.kernels, chain.taps(0, 2), chain.layer_parameters
        ((6, 9), 20, (12, 54))
    """

    rows: FilterChain
    columns: FilterChain

    def __post_init__(self) -> None:
        must = "rows and columns of filters must have the same channels"
        require(self.rows.channels == self.columns.channels, must, f"{self.rows.channels}, {self.columns.channels}")

    @property
    def channels(self) -> tuple[int, ...]:
        return self.rows.channels

    @property
    def kernels(self) -> tuple[int, ...]:
        return tuple(above * beside for above, beside in zip(self.rows.kernels, self.columns.kernels, strict=True))

    @property
    def num_layers(self) -> int:
        return self.rows.num_layers

    @property
    def layer_parameters(self) -> tuple[int, ...]:
        pairs = zip(self.rows.layer_parameters, self.columns.kernels, strict=True)
        return tuple(count * taps for count, taps in pairs)

    @property
    def has_balanced_degrees(self) -> bool:
        """Never: the kernel of a matrix of polynomials in two variables has no degrees to balance."""
        return False

    def taps(self, first: int, last: int) -> int:
        """At how many positions of vertex ``first`` one position of vertex ``last`` looks."""
        return self.rows.taps(first, last) * self.columns.taps(first, last)

    def phases(self, first: int, last: int) -> int:
        return self.rows.phases(first, last) * self.columns.phases(first, last)

    def is_gapless(self, first: int, last: int) -> bool:
        """Whether the formula of one hidden layer in one dimension applies between two vertices: nowhere."""
        return first == last


# Whole numbers: of 64 bits where every product fits, of any size elsewhere.
Integers = npt.NDArray[Any]
NO_LIMIT = 2**62


@dataclass(frozen=True, eq=False)
class ChainTables:
    """``channels`` by vertex; for vertices i <= j ``taps`` t(i, j), ``phases`` and whether there ``is_gapless``.

    >>> tables = chain_tables(FilterChain(channels=(1, 2, 3, 4), kernels=(4, 2, 5)))
    >>> tables.taps[0].tolist(), tables.fed_from_input[0].tolist()[1:]
    ([1, 4, 5, 9], [4, 4, 9])
    """

    channels: Integers
    taps: Integers
    phases: Integers
    is_gapless: npt.NDArray[np.bool_]

    @property
    def last(self) -> int:
        """The last vertex."""
        return len(self.channels) - 1

    @property
    def mirror_image(self) -> ChainTables:
        """The same read from the output to the input."""
        return ChainTables(self.channels[::-1], mirror(self.taps), mirror(self.phases), mirror(self.is_gapless))

    @cached_property
    def fed_from_input(self) -> Integers:
        """By i and v the least m_u t(u, v) over i <= u < v: how many independent channels v can have in addition."""
        spans = self._strictly_above_diagonal(self.channels[:, None] * self.taps)
        return np.minimum.accumulate(spans[::-1], axis=0)[::-1]

    @cached_property
    def fed_from_output(self) -> Integers:
        """By v and j the least m_w t(v, w) over v < w <= j."""
        spans = self._strictly_above_diagonal(self.channels * self.taps)
        return np.minimum.accumulate(spans, axis=1)

    def _strictly_above_diagonal(self, values: Integers) -> Integers:
        is_above = np.triu(np.ones(values.shape, dtype=bool), 1)
        return np.where(is_above, values, NO_LIMIT)


@lru_cache(maxsize=64)
def chain_tables(chain: FilterChain | ImageChain) -> ChainTables:
    size = chain.num_layers + 1
    pairs = [(i, j) for i in range(size) for j in range(i, size)]
    taps = [chain.taps(i, j) for i, j in pairs]
    largest = max(chain.channels) ** 2 * max(taps)
    dtype = np.int64 if 16 * largest < NO_LIMIT else np.object_
    return ChainTables(
        np.array(chain.channels, dtype=dtype),
        _table(size, taps, dtype),
        _table(size, [chain.phases(i, j) for i, j in pairs], dtype),
        _table(size, [chain.is_gapless(i, j) for i, j in pairs], np.bool_),
    )


def mirror(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A table over pairs i <= j with the vertices counted from the other end."""
    return table[::-1, ::-1].T


def _table(size: int, values: list[Any], dtype: Any) -> npt.NDArray[Any]:
    table = np.zeros((size, size), dtype=dtype)
    table[np.triu_indices(size)] = values
    return table
