"""From a torch layer to its matrix: convolutions in one, two or three dimensions, average pooling, nn.Linear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from hessmap.curvature.toeplitz.layer import ToeplitzLayer
from hessmap.errors import UnsupportedNetwork, require, sentence
from hessmap.networks.module_tree import Rules, sequential_layers

_CONVOLUTIONS: dict[type[nn.Module], int] = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}
_POOLINGS: dict[type[nn.Module], type[nn.Module]] = {
    nn.AvgPool1d: nn.Conv1d,
    nn.AvgPool2d: nn.Conv2d,
    nn.AvgPool3d: nn.Conv3d,
}
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
    must = "the shape of an input must be a sequence of integers, as (channels, length)"
    require(isinstance(input_shape, Sequence), must, f"got {input_shape!r}")
    shape = tuple(input_shape)
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
    wiring, positions = _wiring(module, input_shape)
    weight = module.weight.detach()
    outputs, seen = weight.shape[:2]
    taps = prod(weight.shape[2:])
    group = torch.arange(outputs) // (outputs // module.groups)
    first = torch.arange(outputs) * len(wiring) + group * seen * taps
    places = (first[:, None] + torch.arange(seen * taps)).reshape(-1)
    filters = weight.new_zeros(outputs * len(wiring))
    filters[places] = weight.reshape(-1)
    return ToeplitzLayer(filters.reshape(outputs, -1), wiring, places, input_shape, (outputs, *positions))


def _of_pooling(module: Any, input_shape: tuple[int, ...]) -> ToeplitzLayer:
    """Average pooling: a convolution of each channel by itself, with equal weights that are not free."""
    is_plain = not module.ceil_mode and module.count_include_pad and getattr(module, "divisor_override", None) is None
    if not is_plain:
        must = "average pooling is a convolution with ceil_mode=False, count_include_pad=True and no divisor_override"
        raise UnsupportedNetwork(sentence(must, f"got {module}"))
    channels = input_shape[0]
    build: Any = _POOLINGS[type(module)]
    same = build(channels, channels, module.kernel_size, module.stride, module.padding, groups=channels, bias=False)
    same = same.double()
    nn.init.constant_(same.weight, 1 / same.weight[0].numel())
    layer = _of_convolution(same, input_shape)
    return replace(layer, weight_places=layer.weight_places[:0])


def _wiring(module: Any, input_shape: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """Which input each tap of a full filter meets at each position, and the number of positions along each axis."""
    channels, *lengths = input_shape
    num_inputs = prod(input_shape)
    # Padding an image of the inputs' own numbers pads as torch does, in every mode.
    numbers = torch.arange(num_inputs, dtype=torch.float64).reshape(1, *input_shape)
    pads = module._reversed_padding_repeated_twice
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    numbers = pad(numbers, pads, mode, num_inputs if mode == "constant" else None)[0].long()
    meets: list[Tensor] = []
    for axis, length in enumerate(numbers.shape[1:]):
        kernel, stride, dilation = module.kernel_size[axis], module.stride[axis], module.dilation[axis]
        span = (kernel - 1) * dilation + 1
        must = "a kernel must fit into its padded input"
        require(span <= length, must, f"it spans {span} of {length} along axis {axis}")
        starts = torch.arange(0, length - span + 1, stride)
        meets.append(starts[:, None] + dilation * torch.arange(kernel))
    positions = tuple(len(places) for places in meets)
    for axis, places in enumerate(meets):  # each axis becomes two: position and offset
        numbers = numbers[(slice(None),) * (1 + 2 * axis) + (places,)]
    order = [0, *range(2, 2 * len(lengths) + 1, 2), *range(1, 2 * len(lengths) + 1, 2)]
    taps = channels * prod(module.kernel_size)
    return numbers.permute(order).reshape(taps, prod(positions)), positions


def _require_shape(shape: tuple[int, ...], wanted: tuple[int | None, ...], layer: str) -> None:
    fits = len(shape) == len(wanted) and all(want in (None, size) for size, want in zip(shape, wanted, strict=True))
    words = ", ".join("any" if want is None else str(want) for want in wanted)
    require(fits, f"inputs of {layer} must have shape ({words})", f"got {shape}")
