"""Read a torch model as a chain of affine maps and activations that exact arithmetic can evaluate.

A layer that has no exact form is an error that names it. The windows of torch's pools are read with their strides,
paddings, dilations and rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import lcm, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.exact.network import Affine, Chain, ExactActivation, Floats, Identity, LeakyRelu, MaxPool, Patches
from hessmap.linalg import Layout
from hessmap.networks import (
    PolynomialActivation,
    ResidualBlock,
    Rules,
    Shape,
    Unreadable,
    activation_kind,
    sequential_layers,
    shape_after,
)
from hessmap.problem import ConvolutionGeometry, Indices, Problem, crossed_axes, in_every_channel

RULES = Rules(
    "exact arithmetic needs an nn.Sequential of linear, convolution, pooling and reshaping layers with identity, ReLU,"
    " leaky ReLU or polynomial activations, linear residual blocks, or linear self-attention",
    "Use numerical_rank for this network, or generic_rank for the generic linear network of its sizes",
)

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
# A Problem holds no dropout that is on.
_UNCHANGED = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def read_chain(model: nn.Module, layout: Layout, input_shape: Shape) -> Chain[Floats]:
    """The model's layers in float64, every parameter at its place in ``layout`` (-1 where it is not in it).

    Args:
        model: The module.
        layout: Positions of the parameters.
        input_shape: Shape of one sample.

    Returns:
        The network in float64.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``input_shape`` is that of one sample. A constant identity layer stands between two activations in a row, before
        a first and after a last one; an identity activation stands between two linear layers in a row. A module used
        twice is two layers with the same positions.
    """
    places = {id(value): layout[name] for name, value in model.named_parameters() if name in layout.names}
    reading = _Reading(places, tuple(input_shape))
    for name, module in sequential_layers(model, RULES):
        try:
            reading.read(module)
        except Unreadable as reason:
            where = f"layer {name} is {type(module).__name__}" if name else f"the model is {type(module).__name__}"
            raise UnsupportedNetwork(sentence(RULES.must, f"{where}{reason}", RULES.otherwise)) from None
    return reading.chain(layout.size)


@dataclass
class _Reading:
    """The chain so far, and the shape in which its numbers stand."""

    places: dict[int, slice]
    shape: Shape
    layers: list[Affine[Floats]] = field(default_factory=list)
    activations: list[ExactActivation] = field(default_factory=list)

    def read(self, module: nn.Module) -> None:
        """One layer more; only exact types count, because a subclass may compute something else."""
        kind = type(module)
        if kind in _UNCHANGED:
            return
        if kind in (nn.Flatten, nn.Unflatten):
            self.shape = shape_after(module, self.shape)
        elif isinstance(module, nn.Linear) and kind is nn.Linear:
            self._add_linear(module)
        elif isinstance(module, Convolution) and kind in _CONVOLUTIONS:
            self._add_convolution(module)
        elif kind in AVERAGES:
            self._add_average(module)
        elif isinstance(module, ResidualBlock) and kind is ResidualBlock:
            self._add_residual(module)
        else:
            num_units = prod(self.shape)
            self._add_activation(_activation(module, self), num_units)

    def chain(self, num_parameters: int) -> Chain[Floats]:
        if len(self.layers) == len(self.activations):
            self._add(_permutation(np.arange(prod(self.shape))))
        # One divisor for all averages, so that denominators are powers of one number.
        shared = lcm(*(layer.divisor for layer in self.layers))
        layers = tuple(
            replace(layer, weights=layer.weights * (shared // layer.divisor), divisor=shared)
            if layer.divisor > 1
            else layer
            for layer in self.layers
        )
        return Chain(layers, tuple(self.activations), num_parameters)

    def _add(self, layer: Affine[Floats]) -> None:
        if len(self.activations) < len(self.layers):
            self.activations.append(Identity())
        self.layers.append(layer)

    def _add_activation(self, activation: ExactActivation, num_units: int) -> None:
        """A maximum right after an increasing kink goes before it: the same function with the same first derivatives,
        ties included, and no ties among the units that the kink has set to zero."""
        last = self.activations[-1] if len(self.layers) == len(self.activations) and self.activations else None
        if isinstance(activation, MaxPool) and isinstance(last, LeakyRelu) and last.slope >= 0:
            self.activations[-1] = activation
            activation, num_units = last, prod(self.shape)
        if len(self.layers) == len(self.activations):
            self._add(_permutation(np.arange(num_units)))
        self.activations.append(activation)

    def _parameters(self, module: nn.Linear | Convolution) -> tuple[Floats, Indices, bool]:
        """Weights and positions (rows, taps), the bias behind the taps."""
        weights, positions = [], []
        for parameter in (module.weight, module.bias):
            if parameter is None:
                continue
            place = self.places.get(id(parameter))
            flat = np.full(parameter.numel(), -1) if place is None else np.arange(place.start, place.stop)
            weights.append(parameter.detach().cpu().double().numpy().reshape(len(parameter), -1))
            positions.append(flat.reshape(len(parameter), -1))
        return np.concatenate(weights, axis=1), np.concatenate(positions, axis=1), module.bias is not None

    def _add_linear(self, module: nn.Linear) -> None:
        if not self.shape or self.shape[-1] != module.in_features:
            raise Unreadable(f" for {module.in_features} inputs, but the input has shape {self.shape}")
        *places, taps = self.shape
        self.shape = (*places, module.out_features)
        if prod(places) == 1:
            self._add(Affine(*self._parameters(module)))
            return
        sources = np.arange(prod(places) * taps).reshape(1, -1, taps)
        self._add(Affine(*self._parameters(module), patches=Patches(sources, sources.size)))
        # The outputs stand feature by feature, torch's token by token.
        self._add(_permutation(np.arange(prod(self.shape)).reshape(module.out_features, -1).T.ravel()))

    def _add_residual(self, block: ResidualBlock) -> None:
        """[I; D] then [I, U]; without U a copy of the inputs, [I; I], then [I, D]. I + D would round.

        Only linear layers without bias on plain vectors, and no activation: what the skip carries must pass unchanged.
        """
        layers = [block.down] if block.up is None else [block.down, block.up]
        if type(block.activation) is not nn.Identity:
            raise Unreadable(f" with activation {type(block.activation).__name__}")
        if any(type(layer) is not nn.Linear or _is_changed(layer) for layer in layers) or len(self.shape) != 1:
            raise Unreadable(" of more than linear layers on vectors")
        (width,) = self.shape
        one, constant = np.eye(width), np.full((width, width), -1)
        if block.up is None:
            self._add(Affine(np.concatenate([one, one]), np.concatenate([constant, constant]), False))
        for place, layer in enumerate(layers):
            assert isinstance(layer, nn.Linear)
            axis = 1 if layer is layers[-1] and (place or block.up is None) else 0
            weights, positions, has_bias = self._parameters(layer)
            if has_bias or weights.shape[1 - axis] != width:
                raise Unreadable(" with a bias, or of layers that do not fit")
            self._add(Affine(np.concatenate([one, weights], axis), np.concatenate([constant, positions], axis), False))

    def _add_convolution(self, module: Convolution) -> None:
        lengths = self._image(len(module.kernel_size), module.in_channels)
        geometry = ConvolutionGeometry.of_module(module, lengths)
        self.shape = (module.out_channels, *geometry.positions[-len(lengths) :])
        sources = geometry.input_indices(module.in_channels, module.padding_mode)
        patches = Patches(sources, module.in_channels * prod(lengths))
        self._add(Affine(*self._parameters(module), patches=patches))

    def _add_average(self, module: nn.Module) -> None:
        lengths = self._image(num_axes(module))
        num_inputs = prod(self.shape)
        windows, counts, out_lengths = average_windows(module, self.shape[0], lengths)
        self.shape = (self.shape[0], *out_lengths)
        self._add(_average(windows, counts, num_inputs))

    def maximum(self, module: nn.Module) -> MaxPool:
        lengths = self._image(num_axes(module))
        windows, out_lengths = maximum_windows(module, self.shape[0], lengths)
        self.shape = (self.shape[0], *out_lengths)
        return MaxPool(windows)

    def _image(self, num_axes: int, channels: int | None = None) -> Shape:
        """The lengths of an image whose channels come first."""
        if len(self.shape) != num_axes + 1 or (channels is not None and self.shape[0] != channels):
            wanted = "channels" if channels is None else f"{channels} channels"
            raise Unreadable(f" for {wanted} and {num_axes} axes, but the input has shape {self.shape}")
        return self.shape[1:]


def _is_changed(layer: nn.Module) -> bool:
    """Whether a layer inside a block may compute something else than its kind says."""
    try:
        sequential_layers(layer, RULES)
    except UnsupportedNetwork:
        return True
    return False


def _activation(module: nn.Module, reading: _Reading) -> ExactActivation:
    """What a layer that is not affine does; a refusal for all that is not exact."""
    kind, row = type(module), activation_kind(module)
    if row is not None and row.negative_slope is not None:
        return LeakyRelu(row.negative_slope(module))
    if isinstance(module, PolynomialActivation) and kind is PolynomialActivation:
        return module.polynomial
    if kind in MAXIMA:
        return reading.maximum(module)
    raise Unreadable


def _permutation(order: Indices) -> Affine[Floats]:
    """The constant layer whose output i is input order[i]."""
    return Affine(np.ones((1, 1)), np.full((1, 1), -1), False, Patches(order[None, :, None], len(order)))


def _average(windows: Indices, counts: Indices, num_inputs: int) -> Affine[Floats]:
    """The constant layer of means over windows (outputs, taps), each sum divided by its count."""
    divisor = lcm(*(int(count) for count in np.unique(counts)))
    odd = divisor // (divisor & -divisor)  # powers of two are exact in float64
    if (counts == counts[0]).all():
        weights, sources = np.full((1, windows.shape[1]), odd / counts[0]), windows[None]
    else:
        weights = np.repeat((odd / counts)[:, None], windows.shape[1], axis=1)
        sources = windows[:, None]
    return Affine(weights, np.full(weights.shape, -1), False, Patches(sources, num_inputs), odd)


AVERAGES: dict[type[nn.Module], int] = {
    nn.AvgPool1d: 1,
    nn.AvgPool2d: 2,
    nn.AvgPool3d: 3,
    nn.AdaptiveAvgPool1d: 1,
    nn.AdaptiveAvgPool2d: 2,
    nn.AdaptiveAvgPool3d: 3,
}
MAXIMA: dict[type[nn.Module], int] = {nn.MaxPool1d: 1, nn.MaxPool2d: 2, nn.MaxPool3d: 3}
_ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)


def num_axes(module: nn.Module) -> int:
    """Of the images that a pool is for."""
    return (AVERAGES | MAXIMA)[type(module)]


def maximum_windows(module: Any, num_channels: int, lengths: Shape) -> tuple[Indices, Shape]:
    """The windows (outputs, entries) of a max-pool over all channels, -1 for none, and the lengths of its outputs."""
    geometry = _geometry(module, lengths, module.dilation)
    return _all_windows(geometry.image_indices(), num_channels, lengths), geometry.positions[-len(lengths) :]


def average_windows(module: Any, num_channels: int, lengths: Shape) -> tuple[Indices, Indices, Shape]:
    """The same of an average-pool, and the number by which each sum is divided."""
    if isinstance(module, _ADAPTIVE):
        wanted = _per_axis(module.output_size, len(lengths))
        sizes = tuple(length if size is None else size for size, length in zip(wanted, lengths, strict=True))
        axes = [adaptive_windows(length, size) for length, size in zip(lengths, sizes, strict=True)]
        windows = crossed_axes(axes, lengths)
        counts = np.sum(windows >= 0, axis=1)
    else:
        geometry = _geometry(module, lengths, dilation=1)
        sizes, windows = geometry.positions[-len(lengths) :], geometry.image_indices()
        counts = _counts(module, sizes, lengths, windows)
    return _all_windows(windows, num_channels, lengths), np.tile(counts, num_channels), sizes


def adaptive_windows(length: int, num_windows: int) -> Indices:
    """torch's windows of almost equal size, (num_windows, largest size), -1 where a window is smaller.

    >>> adaptive_windows(5, 2).tolist()
    [[0, 1, 2], [2, 3, 4]]
    """
    edges = [(place * length // num_windows, -(-(place + 1) * length // num_windows)) for place in range(num_windows)]
    largest = max(stop - start for start, stop in edges)
    return np.array([[at if at < stop else -1 for at in range(start, start + largest)] for start, stop in edges])


def _geometry(module: Any, lengths: Shape, dilation: Any) -> ConvolutionGeometry:
    """How many windows there are is asked of torch: rounding up has its own rules. The last may need more padding."""
    counts = module(torch.zeros(1, 1, *lengths, dtype=torch.float64)).shape[2:]
    options = (module.kernel_size, module.stride, module.padding, dilation)
    kernel, stride, padding, steps = (_per_axis(option, len(lengths)) for option in options)
    pads = []
    for axis, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        end = (count - 1) * stride[axis] + steps[axis] * (kernel[axis] - 1) + 1
        pads.append((padding[axis], max(padding[axis], end - length - padding[axis])))
    return ConvolutionGeometry(lengths, kernel, stride, tuple(pads), steps)


def _counts(module: Any, counts: Shape, lengths: Shape, windows: Indices) -> Indices:
    """By how much an average is divided at each place: the padding counts or not, what lies beyond it never does."""
    if getattr(module, "divisor_override", None):
        return np.full(len(windows), module.divisor_override)
    if not module.count_include_pad:
        return np.asarray(np.sum(windows >= 0, axis=1))
    total = np.ones(1, dtype=np.int64)
    options = (_per_axis(option, len(lengths)) for option in (module.kernel_size, module.stride, module.padding))
    for count, length, kernel, stride, padding in zip(counts, lengths, *options, strict=True):
        starts = np.arange(count) * stride
        sizes = np.minimum(starts + kernel, length + 2 * padding) - starts
        total = np.multiply.outer(total, sizes).ravel()
    return total


def _all_windows(windows: Indices, num_channels: int, lengths: Shape) -> Indices:
    return in_every_channel(windows, num_channels, prod(lengths)).reshape(-1, windows.shape[1])


def _per_axis(option: Any, num: int) -> tuple[Any, ...]:
    sizes = tuple(option) if isinstance(option, tuple | list) else (option,)
    return sizes * num if len(sizes) == 1 else sizes


def tensor_inputs(problem: Problem, rules: Rules) -> Tensor:
    """The inputs of a model that is read by its layers: one tensor, with which the model itself is called.

    Args:
        problem: Model and data.
        rules: What the caller requires of a network, for the error.

    Returns:
        Tensor: All inputs in memory.

    Raises:
        UnsupportedNetwork: If the inputs are several tensors, or a forward function calls the model.
    """
    if problem.user_forward is not None:
        rules.refuse("", problem.model, "is called by a user-defined forward function")
    inputs = problem.inputs
    if not isinstance(inputs, Tensor):
        rules.refuse("", problem.model, f"is called with a {type(inputs).__name__} of tensors")
    return inputs
