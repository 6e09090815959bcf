"""A convolutional layer as the matrix it is, and the derivative of that matrix by the weights.

Units are flattened channel by channel, positions in row-major order, as ``torch.flatten`` does. At output position j
filter i meets a patch of the inputs: its tap u (an input channel and an offset) meets the input ``wiring[u, j]``. So

    T[(i, j), wiring[u, j]] = W[i, u]        all else zero,

for any stride, padding, dilation and number of dimensions. T is linear in the weights, with the same derivative for
every filter: vec_r T = (1 (x) Q) vec_r W, vec_r taking a matrix row by row and Q[(j, wiring[u, j]), u] = 1. That is
Lemma 1 of Singh, Hofmann & Schoelkopf (2023), there for one dimension, stride 1 and no padding.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from string import ascii_letters, digits

import torch
from torch import Tensor

_LETTERS = ascii_letters + digits


@dataclass(frozen=True, eq=False, repr=False)
class ToeplitzLayer:
    """The linear map of a convolution on flattened inputs, made by ``toeplitz_layer``.

    ``filters`` are the weights, one filter a row: (m, taps), taps over input channels and offsets; a grouped
    convolution has zeros at the channels a filter does not see, and ``weight_places`` says where in the flat
    ``filters`` the layer's weights are. ``wiring`` has shape (taps, positions); the number of inputs stands for none.
    Shapes are (channels, *positions) without the sample.
    """

    filters: Tensor
    wiring: Tensor
    weight_places: Tensor
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]

    @property
    def num_inputs(self) -> int:
        return prod(self.input_shape)

    @property
    def num_positions(self) -> int:
        """At how many places of its input each filter is applied."""
        return int(self.wiring.shape[1])

    @property
    def num_weights(self) -> int:
        return len(self.weight_places)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix: outputs and inputs."""
        return len(self.filters) * self.num_positions, self.num_inputs

    @cached_property
    def matrix(self) -> Tensor:
        """T: the flattened output is ``matrix`` times the flattened input."""
        shape = len(self.filters), self.num_positions, len(self.wiring)
        padded = self.filters.new_zeros(*shape[:2], self.num_inputs + 1)
        padded.scatter_add_(2, self.wiring.T.expand(shape), self.filters[:, None].expand(shape))
        return padded[:, :, :-1].reshape(self.shape)

    @cached_property
    def filter_derivative(self) -> Tensor:
        """Q, shape (positions * inputs, taps): the rows of T that belong to one filter, by that filter."""
        taps, positions = self.wiring.shape
        padded = self.filters.new_zeros(positions, self.num_inputs + 1, taps)
        padded.scatter_(1, self.wiring.T[:, None], 1.0)
        return padded[:, :-1].reshape(-1, taps)

    @cached_property
    def derivative(self) -> Tensor:
        """The matrix by the layer's own weights, both flat and row-major: sparse, (rows * columns, weights)."""
        taps, positions = self.wiring.shape
        own_filter, own_tap = self.weight_places // taps, self.weight_places % taps
        inputs = self.wiring[own_tap]
        outputs = own_filter[:, None] * positions + torch.arange(positions)
        weights = torch.arange(self.num_weights)[:, None].expand_as(inputs)
        is_wired = inputs < self.num_inputs
        entries = torch.stack([(outputs * self.num_inputs + inputs)[is_wired], weights[is_wired]])
        rows, columns = self.shape
        ones, shape = self.filters.new_ones(entries.shape[1]), (rows * columns, self.num_weights)
        return torch.sparse_coo_tensor(entries, ones, shape, check_invariants=True).coalesce()

    def picture(self) -> str:
        """The matrix in letters, one for each tap of a filter; dots are zeros that no weight can change."""
        return matrix_picture(self.wiring.tolist(), self.weight_places.tolist(), len(self.filters), self.input_shape)

    def __repr__(self) -> str:
        rows, columns = self.shape
        free = len(self.derivative.values())
        words = f"{_words(self.input_shape)} -> {_words(self.output_shape)}"
        return f"ToeplitzLayer({words}: {rows} x {columns}, {self.num_weights} weights at {free} of {rows * columns})"


def _words(shape: tuple[int, ...]) -> str:
    channels, *positions = shape
    return f"{channels} of {'x'.join(map(str, positions))}" if positions else str(channels)


def matrix_picture(
    wiring: Sequence[Sequence[int]], weight_places: Collection[int], num_filters: int, input_shape: tuple[int, ...]
) -> str:
    """One line for each output, one sign for each input: the letter of the tap that joins them, a dot for none.

    Filters stand in blocks below each other and input channels beside each other. Equal letters in one block of rows
    are the same weight; '*' is more than one weight, or a tap beyond the 62 letters.

    >>> print(matrix_picture([[0, 1, 2], [1, 2, 3]], {0, 1, 2, 3}, num_filters=2, input_shape=(1, 4)))
    a b . .
    . a b .
    . . a b
    <BLANKLINE>
    a b . .
    . a b .
    . . a b
    """
    free = set(weight_places)
    num_inputs = prod(input_shape)
    blocks = []
    for own_filter in range(num_filters):
        first = own_filter * len(wiring)
        taps = [tap for tap in range(len(wiring)) if first + tap in free]
        lines = []
        for position in range(len(wiring[0])):
            signs = ["."] * (num_inputs + 1)
            for tap in taps:
                place = wiring[tap][position]
                signs[place] = _LETTERS[tap] if signs[place] == "." and tap < len(_LETTERS) else "*"
            lines.append(_by_channel(signs[:num_inputs], input_shape))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _by_channel(signs: list[str], input_shape: tuple[int, ...]) -> str:
    length = prod(input_shape[1:])
    if length == 1:
        return " ".join(signs)
    return "  |  ".join(" ".join(signs[start : start + length]) for start in range(0, len(signs), length))
