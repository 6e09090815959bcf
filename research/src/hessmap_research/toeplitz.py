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
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from string import ascii_letters, digits
from typing import Any

import torch
from torch import Tensor, nn

from hessmap.errors import UnsupportedNetwork, require, sentence
from hessmap.networks import Rules, checked_counts, sequential_layers
from hessmap.problem.geometry import ConvolutionGeometry

_CONVOLUTIONS: dict[type[nn.Module], int] = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}
_POOLINGS: dict[type[nn.Module], int] = {nn.AvgPool1d: 1, nn.AvgPool2d: 2, nn.AvgPool3d: 3}
_RULES = Rules("a layer with a Toeplitz matrix is a convolution, an average pooling or an nn.Linear", "")
WITH_MATRIX = (*_CONVOLUTIONS, *_POOLINGS, nn.Linear)


def toeplitz_layer(module: nn.Module, input_shape: Sequence[int]) -> ToeplitzLayer:
    """The matrix of a torch layer on flattened inputs of shape ``input_shape``, and how the weights enter it.

    ``module`` is an nn.Conv1d, nn.Conv2d or nn.Conv3d (stride, padding in any mode, dilation, groups), an average
    pooling (no weights are free), or an nn.Linear on a vector. ``input_shape`` is that of one sample: channels first. A
    bias is left out: it adds to the output and is no part of the matrix.

    >>> layer = toeplitz_layer(nn.Conv1d(2, 1, kernel_size=2, stride=2, padding=1), (2, 4))
    >>> layer
    ToeplitzLayer(2 of 4 -> 1 of 3: 3 x 8, 4 weights at 8 of 24)
    >>> print(layer.picture())
    b . . .  |  d . . .
    . a b .  |  . c d .
    . . . a  |  . . . c
    >>> layer.matrix.shape, layer.derivative.shape
    (torch.Size([3, 8]), torch.Size([24, 4]))
    """
    if not isinstance(module, nn.Module):
        raise UnsupportedNetwork(sentence(_RULES.must, f"got a {type(module).__name__}"))
    must = "the shape of an input must be a sequence of integers, as (channels, length)"
    require(isinstance(input_shape, Sequence), must, f"got {input_shape!r}")
    shape = checked_counts("input_shape", input_shape)
    sequential_layers(module, _RULES)  # refuses what may compute something else than its kind says
    if type(module) in _POOLINGS:
        return _of_pooling(module, shape)
    if type(module) is nn.Linear:
        return _of_linear(module, shape)
    if type(module) in _CONVOLUTIONS:
        return _of_convolution(module, shape)
    raise UnsupportedNetwork(sentence(_RULES.must, f"got a {type(module).__name__}"))


def _of_linear(module: nn.Linear, input_shape: tuple[int, ...]) -> ToeplitzLayer:
    weight = module.weight.detach()
    outputs, inputs = weight.shape
    _require_shape(input_shape, (inputs,), f"{module}")
    wiring = torch.arange(inputs)[:, None]
    return ToeplitzLayer(weight, wiring, torch.arange(weight.numel()), (inputs,), (outputs,))


def _of_convolution(module: Any, input_shape: tuple[int, ...]) -> ToeplitzLayer:
    _require_shape(input_shape, (module.in_channels, *[None] * _CONVOLUTIONS[type(module)]), f"{module}")
    geometry = ConvolutionGeometry.of_module(module, input_shape[1:])
    return _convolution(module.weight.detach(), geometry, input_shape, module.padding_mode)


def _of_pooling(module: Any, input_shape: tuple[int, ...]) -> ToeplitzLayer:
    """Average pooling: a convolution of each channel by itself, with equal weights that are not free."""
    is_plain = not module.ceil_mode and module.count_include_pad and getattr(module, "divisor_override", None) is None
    if not is_plain:
        must = "average pooling is a convolution with ceil_mode=False, count_include_pad=True and no divisor_override"
        raise UnsupportedNetwork(sentence(must, f"got {module}"))
    num_axes = _POOLINGS[type(module)]
    _require_shape(input_shape, (None,) * (1 + num_axes), f"{module}")
    channels, *image = input_shape
    size = module.kernel_size
    kernel = (size,) * num_axes if isinstance(size, int) else tuple(size) * (num_axes // len(size))
    geometry = ConvolutionGeometry.of_call(image, kernel, module.stride, module.padding, groups=channels)
    geometry.require_fit()
    weight = torch.full((channels, 1, *kernel), 1 / prod(kernel), dtype=torch.float64)
    layer = _convolution(weight, geometry, input_shape)
    return replace(layer, weight_places=layer.weight_places[:0])


def _convolution(
    weight: Tensor, geometry: ConvolutionGeometry, input_shape: tuple[int, ...], padding_mode: str = "zeros"
) -> ToeplitzLayer:
    """Filters over all channels, with zeros at those that the filters of a group do not meet."""
    channels, *image = input_shape
    indices = replace(geometry, groups=1).input_indices(channels, padding_mode)[0].T
    wiring = torch.from_numpy(indices).clone()
    wiring[wiring < 0] = prod(input_shape)
    outputs, own_taps = len(weight), weight[0].numel()
    group = torch.arange(outputs) // (outputs // geometry.groups)
    first = torch.arange(outputs) * len(wiring) + group * own_taps
    places = (first[:, None] + torch.arange(own_taps)).reshape(-1)
    filters = weight.new_zeros(outputs * len(wiring))
    filters[places] = weight.reshape(-1)
    positions = geometry.positions[-len(image) :]
    return ToeplitzLayer(filters.reshape(outputs, -1), wiring, places, input_shape, (outputs, *positions))


def _require_shape(shape: tuple[int, ...], wanted: tuple[int | None, ...], layer: str) -> None:
    fits = len(shape) == len(wanted) and all(want in (None, size) for size, want in zip(shape, wanted, strict=True))
    words = ", ".join("any" if want is None else str(want) for want in wanted)
    require(fits, f"inputs of {layer} must have shape ({words})", f"got {shape}")


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
