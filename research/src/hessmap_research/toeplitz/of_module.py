"""From a torch layer to its matrix: convolutions in one, two or three dimensions, average pooling, nn.Linear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from hessmap.errors import UnsupportedNetwork, require, sentence
from hessmap.networks.arguments import checked_counts
from hessmap.networks.module_tree import Rules, sequential_layers
from hessmap.problem.geometry import ConvolutionGeometry
from hessmap_research.toeplitz.layer import ToeplitzLayer

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
