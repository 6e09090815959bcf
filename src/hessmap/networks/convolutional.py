"""Convolutional networks of one and two dimensions as frozen descriptions: fields, sizes, counts and text.

Locally connected networks, with and without shared weights, are convolutions whose positions may differ.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

from hessmap.errors import InvalidInput, checked_count, require, sentence
from hessmap.networks.activations import Activation, activation_of
from hessmap.networks.arguments import BaseArchitecture, Bias, checked_bias, checked_counts, marked_bias, read_words

if TYPE_CHECKING:
    import torch
    from torch import nn


_LOCAL_SHAPE = "a locally connected network must be written as 'local-5x4-3-10' or 'local-5x4-3-10 relu shared'"
_LOCAL_MEANING = "That is 5 patches of 4 inputs, 3 filters on each patch, 10 outputs"


class Convolutions(BaseArchitecture):
    """Convolutions over ``channels[0]`` channels with an activation after each, then one dense layer.

    A kind of network says what its input and its kernels are along each axis.
    """

    channels: tuple[int, ...]
    strides: tuple[int, ...]
    outputs: int
    bias: Bias
    activation: Activation
    paddings: tuple[int, ...]

    @property
    @abstractmethod
    def input_axes(self) -> tuple[int, ...]:
        """The length of the input along each axis."""

    @property
    @abstractmethod
    def kernel_axes(self) -> tuple[tuple[int, ...], ...]:
        """The taps of each kernel along each axis."""

    def _set_fields(
        self,
        own: Mapping[str, object],
        channels: Iterable[int],
        strides: Iterable[int] | None,
        outputs: int,
        bias: bool | Iterable[bool],
        activation: Activation,
        paddings: Iterable[int] | None,
    ) -> None:
        """Check and set the fields, those of the kind of network as they are: ``own`` holds its kernels."""
        for name, value in own.items():
            object.__setattr__(self, name, value)
        count = len(self.kernel_axes)
        fields = {
            "channels": checked_counts("channels", channels),
            "strides": (1,) * count if strides is None else checked_counts("strides", strides),
            "outputs": checked_count("outputs", outputs),
            "bias": checked_bias(bias, count + 1),
            "activation": activation_of(activation),
            "paddings": (0,) * count if paddings is None else checked_counts("paddings", paddings, 0),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self._check_counts(count)
        for place, layer in enumerate(zip(self._axis_sizes, self.kernel_axes, self.paddings, strict=False)):
            for length, taps in zip(*layer[:2], strict=True):
                _check_kernel_fits(f"kernels[{place}]", taps, length, layer[2])

    @property
    def _axis_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Positions along each axis of the input and after each convolution."""
        sizes = [self.input_axes]
        for kernel, stride, padding in zip(self.kernel_axes, self.strides, self.paddings, strict=True):
            axes = zip(sizes[-1], kernel, strict=True)
            sizes.append(tuple(positions_after(length, taps, stride, padding) for length, taps in axes))
        return tuple(sizes)

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions of the input and after each convolution."""
        return tuple(map(prod, self._axis_sizes))

    @property
    def taps(self) -> tuple[int, ...]:
        """Weights of each filter for one channel."""
        return tuple(map(prod, self.kernel_axes))

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of input, hidden layers and output: channels times positions, then the outputs."""
        units = (channels * count for channels, count in zip(self.channels, self.positions, strict=True))
        return (*units, self.outputs)

    @property
    def input_dim(self) -> int:
        return self.widths[0]

    @property
    def output_dim(self) -> int:
        return self.outputs

    @property
    def num_layers(self) -> int:
        """Layers with weights: the convolutions and the dense one."""
        return len(self.channels)

    @property
    def layer_parameters(self) -> tuple[int, ...]:
        """The number of parameters of each layer."""
        *biases, last = self.biases
        filters = (
            after * (before * taps + bias)
            for (before, after), taps, bias in zip(pairwise(self.channels), self.taps, biases, strict=True)
        )
        return (*filters, self.outputs * (self.widths[-2] + last))

    @property
    def num_parameters(self) -> int:
        return sum(self.layer_parameters)

    def build(self, seed: int = 0, init: str = "gaussian", dtype: torch.dtype | None = None) -> nn.Sequential:
        """Unflatten, Conv1d or Conv2d, activation, ..., Flatten, Linear, its parameters drawn from ``seed`` alone.

        ``init`` and ``dtype`` as for ``FullyConnected.build``; fan_in is channels times taps. The parameters are
        "1.weight", "3.weight", ..., the dense layer's number one higher for the Flatten before it.
        """
        from hessmap.networks.build import build_convolutions

        return build_convolutions(self, seed=seed, init=init, dtype=dtype)

    def _check_counts(self, num_convolutions: int) -> None:
        """One number of channels, stride and padding per convolution."""
        require(num_convolutions >= 1, "a convolutional network has at least one convolution", "kernels is empty")
        begin = "Begin with the channels of the input"
        for name, extra, remedy in (("channels", 1, begin), ("strides", 0, ""), ("paddings", 0, "")):
            given = getattr(self, name)
            must = f"{name} must contain {num_convolutions + extra} integers for {num_convolutions} kernels"
            require(len(given) == num_convolutions + extra, must, f"got {given}", remedy)

    def __str__(self) -> str:
        """The network as a text: its input, its filters with stride, padding and bias, its outputs, and words."""
        parts = ["conv", "x".join(map(str, (self.channels[0], *self.input_axes)))]
        kernels = ["x".join(map(str, kernel)) for kernel in self.kernel_axes]
        *marks, last = ("b" * (bias and self.bias is not True) for bias in self.biases)
        layers = zip(self.channels[1:], kernels, self.strides, self.paddings, marks, strict=True)
        for filters, kernel, stride, padding, mark in layers:
            parts.append(f"{filters}x{kernel}" + f"/{stride}" * (stride > 1) + f"+{padding}" * (padding > 0) + mark)
        words = ["-".join([*parts, f"{self.outputs}{last}"])]
        if not self.is_linear:
            words.append(str(self.activation))
        if self.bias is True:
            words.append("bias")
        return " ".join(words)


def positions_after(length: int, kernel: int, stride: int, padding: int) -> int:
    """(length + 2 padding - kernel) // stride + 1.

    >>> positions_after(32, kernel=5, stride=2, padding=1)
    15
    """
    return (length + 2 * padding - kernel) // stride + 1


def _check_kernel_fits(name: str, kernel: int, length: int, padding: int) -> None:
    padded = f"{length} positions" + (f" and 2 * {padding} zeros" if padding else "")
    must = "a kernel must fit into its input"
    require(kernel <= length + 2 * padding, must, f"{name} is {kernel}, its input has {padded}")


def read_convolutions(text: str, num_axes: int, must: str, meaning: str) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The input's sizes and the other arguments of the network that a text names; a kernel is a tuple of taps."""
    first, activation, flags = read_words(text, flags=("bias",))
    prefix, *parts = first.split("-")
    sizes = r"x(\d+)" * num_axes
    layers = [re.fullmatch(rf"(\d+){sizes}(?:/(\d+))?(?:\+(\d+))?b?", part) for part in parts[:-1]]
    outputs = parts[-1].removesuffix("b") if parts else ""
    is_readable = prefix == "conv" and len(layers) >= 2 and all(layers) and outputs.isdecimal()
    if not is_readable or "/" in parts[0] or "+" in parts[0]:
        raise InvalidInput(sentence(must, f"got {text!r}", meaning))
    (channels, *entering, _, _), *rest = (layer.groups() for layer in layers if layer is not None)
    return tuple(map(int, entering)), {
        "channels": (int(channels), *(int(filters) for filters, *_ in rest)),
        "kernels": [tuple(map(int, kernel)) for _, *kernel, _, _ in rest],
        "strides": [int(stride or 1) for *_, stride, _ in rest],
        "outputs": int(outputs),
        "bias": marked_bias(parts, "bias" in flags),
        "activation": activation,
        "paddings": [int(padding or 0) for *_, padding in rest],
    }


Pair = tuple[int, int]
_IMAGE_SHAPE = "a network on images must be written as 'conv-3x32x32-16x3x3-10' or 'conv-1x8x8-8x3x3/2+1-10 relu bias'"
_IMAGE_MEANING = (
    "That is 3 channels of 32 by 32 pixels, then 16 filters of 3 by 3 taps (/2: stride 2, +1: padding 1), ..., then 10"
    " outputs; a b after a layer, as in '16x3x3b', gives this layer a bias"
)


@dataclass(frozen=True, init=False)
class ImageConvolutional(Convolutions):
    """Convolutions over images, then one dense layer.

    The activation follows each convolution. Inputs are flat, (num_samples, channels[0] * height * width), channel by
    channel and row by row.

    Args:
        input_size: Height and width of an image, or one integer for a square.
        channels: Channels of the input, then filters of each convolution. Defaults to (1, 8, 16).
        kernels: Size of each kernel, an integer for a square or (height, width). Defaults to (3, 3), two squares.
        strides: Stride of each convolution. Defaults to 1.
        outputs: Number of outputs of the dense layer. Defaults to 10.
        bias: Whether layers have a bias: one value for all layers, or one per layer, the dense one last. Defaults to
            False.
        activation: Name of ``ACTIVATIONS``, "polynomial(c0,c1,..)" or a ``Polynomial``. Defaults to "identity".
        paddings: Zeros on every side, for each convolution. Defaults to 0.

    Example:
        >>> net = ImageConvolutional((8, 6), channels=(1, 4, 5), kernels=(3, (2, 3)), strides=(1, 2), outputs=10)
        >>> print(net)
        conv-1x8x6-4x3x3-5x2x3/2-10
        >>> net.sizes, net.positions, net.num_parameters
        (((8, 6), (6, 4), (3, 1)), (48, 24, 3), 306)
        >>> [name for name, _ in ImageConvolutional(4, (1, 2), (2,)).build(seed=0).named_parameters()]
        ['1.weight', '4.weight']
    """

    input_size: Pair
    channels: tuple[int, ...]
    kernels: tuple[Pair, ...]
    strides: tuple[int, ...]
    outputs: int
    bias: Bias
    activation: Activation
    paddings: tuple[int, ...]

    def __init__(
        self,
        input_size: int | Pair,
        channels: Iterable[int] = (1, 8, 16),
        kernels: Iterable[int | Pair] = (3, 3),
        strides: Iterable[int] | None = None,
        outputs: int = 10,
        bias: bool | Iterable[bool] = False,
        activation: Activation = "identity",
        paddings: Iterable[int] | None = None,
    ) -> None:
        must = "kernels must be a sequence of integers or pairs"
        is_sequence = isinstance(kernels, Iterable) and not isinstance(kernels, str)
        require(is_sequence, must, f"got {kernels!r}", "Give for example (3, 3)")
        pairs = tuple(_checked_pair(f"kernels[{place}]", kernel) for place, kernel in enumerate(kernels))
        own = {"input_size": _checked_pair("input_size", input_size), "kernels": pairs}
        self._set_fields(own, channels, strides, outputs, bias, activation, paddings)

    @property
    def sizes(self) -> tuple[Pair, ...]:
        """Height and width of the input and after each convolution."""
        return tuple((height, width) for height, width in self._axis_sizes)

    @property
    def input_axes(self) -> tuple[int, ...]:
        return self.input_size

    @property
    def kernel_axes(self) -> tuple[tuple[int, ...], ...]:
        return self.kernels

    @classmethod
    def parse(cls, text: str) -> ImageConvolutional:
        """The network that a text names as ``str`` prints it.

        >>> ImageConvolutional.parse("conv-3x32x32-16x3x3/2+1-10 relu") == ImageConvolutional(
        ...     32, (3, 16), (3,), (2,), outputs=10, activation="relu", paddings=(1,))
        True
        """
        (height, width), others = read_convolutions(text, 2, _IMAGE_SHAPE, _IMAGE_MEANING)
        return cls((height, width), **others)


def _checked_pair(name: str, value: object) -> Pair:
    """(height, width); an integer is a square.

    >>> _checked_pair("input_size", 8)
    (8, 8)
    """
    pair = checked_counts(name, value if isinstance(value, tuple | list) else (value, value))
    require(len(pair) == 2, f"{name} must be an integer or (height, width)", f"got {value!r}")
    return pair[0], pair[1]


_SHAPE = "a convolutional network must be written as 'conv-1x20-8x3-16x3-10' or 'conv-1x20-8x3/2+1-10 relu bias'"
_MEANING = (
    "That is 1 channel of length 20, then 8 filters of 3 taps (/2: stride 2, +1: padding 1), ..., then 10 outputs;"
    " a b after a layer, as in '8x3b', gives this layer a bias"
)


@dataclass(frozen=True, init=False)
class Convolutional(Convolutions):
    """Convolutions over one-dimensional inputs, then one dense layer.

    The activation follows each convolution. Inputs are flat, (num_samples, channels[0] * input_length), channel by
    channel.

    Args:
        input_length: Number of positions of an input.
        channels: Channels of the input, then filters of each convolution. Defaults to (1, 8, 16).
        kernels: Taps of each convolution. Defaults to (3, 3).
        strides: Stride of each convolution. Defaults to 1.
        outputs: Number of outputs of the dense layer. Defaults to 10.
        bias: Whether layers have a bias: one value for all layers, or one per layer, the dense one last. Defaults to
            False.
        activation: Name of ``ACTIVATIONS``, "polynomial(c0,c1,..)" or a ``Polynomial``. Defaults to "identity".
        paddings: Zeros on either side, for each convolution. Defaults to 0.

    Example:
        >>> net = Convolutional(20, channels=(1, 8, 16), kernels=(3, 3), strides=(1, 2), outputs=10)
        >>> print(net)
        conv-1x20-8x3-16x3/2-10
        >>> net.lengths, net.num_layers, net.num_parameters
        ((20, 18, 8), 3, 1688)
        >>> [name for name, _ in Convolutional(5, (1, 2, 2), (2, 2)).build(seed=0).named_parameters()]
        ['1.weight', '3.weight', '6.weight']
    """

    input_length: int
    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    outputs: int
    bias: Bias
    activation: Activation
    paddings: tuple[int, ...]

    def __init__(
        self,
        input_length: int,
        channels: Iterable[int] = (1, 8, 16),
        kernels: Iterable[int] = (3, 3),
        strides: Iterable[int] | None = None,
        outputs: int = 10,
        bias: bool | Iterable[bool] = False,
        activation: Activation = "identity",
        paddings: Iterable[int] | None = None,
    ) -> None:
        own = {
            "input_length": checked_count("input_length", input_length),
            "kernels": checked_counts("kernels", kernels),
        }
        self._set_fields(own, channels, strides, outputs, bias, activation, paddings)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Positions of the input and after each convolution: (length + 2 padding - kernel) // stride + 1."""
        return self.positions

    @property
    def input_axes(self) -> tuple[int, ...]:
        return (self.input_length,)

    @property
    def kernel_axes(self) -> tuple[tuple[int, ...], ...]:
        return tuple((kernel,) for kernel in self.kernels)

    @classmethod
    def parse(cls, text: str) -> Convolutional:
        """The network that a text names as ``str`` prints it.

        >>> Convolutional.parse("conv-1x20-8x3-16x3/2-10 relu") == Convolutional(
        ...     20, (1, 8, 16), (3, 3), (1, 2), outputs=10, activation="relu")
        True
        """
        (length,), others = read_convolutions(text, 1, _SHAPE, _MEANING)
        return cls(length, **others | {"kernels": [kernel for (kernel,) in others["kernels"]]})


@dataclass(frozen=True, init=False)
class LocallyConnected(BaseArchitecture):
    """Filters on disjoint patches of the inputs, then one dense layer.

    The activation follows the filters; there is no bias. Inputs are flat, (num_samples, patches * patch_size), patch
    by patch.

    Args:
        patches: Number of patches.
        patch_size: Inputs of a patch.
        filters: Filters on each patch.
        outputs: Number of outputs of the dense layer.
        shared_weights: Whether all patches have the same filters. Defaults to False, which is also stored for one
            patch, so that equal functions are equal objects.
        activation: Name of ``ACTIVATIONS``, "polynomial(c0,c1,..)" or a ``Polynomial``. Defaults to "identity".

    Example:
        >>> net = LocallyConnected(patches=5, patch_size=4, filters=3, outputs=10)
        >>> print(net)
        local-5x4-3-10
        >>> net.num_parameters, LocallyConnected(5, 4, 3, 10, shared_weights=True).num_parameters
        (210, 162)
    """

    patches: int
    patch_size: int
    filters: int
    outputs: int
    shared_weights: bool
    activation: Activation

    def __init__(
        self,
        patches: int,
        patch_size: int,
        filters: int,
        outputs: int,
        shared_weights: bool = False,
        activation: Activation = "identity",
    ) -> None:
        is_bool = isinstance(shared_weights, bool)
        require(is_bool, "shared_weights must be True or False", f"got {shared_weights!r}")
        object.__setattr__(self, "patches", checked_count("patches", patches))
        object.__setattr__(self, "patch_size", checked_count("patch_size", patch_size))
        object.__setattr__(self, "filters", checked_count("filters", filters))
        object.__setattr__(self, "outputs", checked_count("outputs", outputs))
        object.__setattr__(self, "shared_weights", shared_weights and self.patches > 1)
        object.__setattr__(self, "activation", activation_of(activation))

    @property
    def input_dim(self) -> int:
        return self.patches * self.patch_size

    @property
    def output_dim(self) -> int:
        return self.outputs

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of input, hidden layer and output."""
        return (self.input_dim, self.patches * self.filters, self.outputs)

    @property
    def num_layers(self) -> int:
        """Layers with weights: the filters and the dense one."""
        return 2

    @property
    def layer_parameters(self) -> tuple[int, ...]:
        """The number of parameters of each layer."""
        num_patches_with_own_filters = 1 if self.shared_weights else self.patches
        return (
            num_patches_with_own_filters * self.filters * self.patch_size,
            self.outputs * self.patches * self.filters,
        )

    @property
    def num_parameters(self) -> int:
        return sum(self.layer_parameters)

    def build(self, seed: int = 0, init: str = "gaussian", dtype: torch.dtype | None = None) -> nn.Sequential:
        """Unflatten, filters, activation, Flatten, Linear, its parameters drawn from ``seed`` alone.

        The filters are an ``nn.Conv1d`` with one group per patch or, if shared (or the only patch's), one ``nn.Linear``
        applied to every patch; either way the hidden units stand patch by patch. ``init`` and ``dtype`` as for
        ``FullyConnected.build``.

        >>> model = LocallyConnected(patches=5, patch_size=4, filters=3, outputs=10).build(seed=0)
        >>> [(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()]
        [('1.weight', (15, 1, 4)), ('4.weight', (10, 15))]
        """
        from hessmap.networks.build import build_locally_connected

        return build_locally_connected(self, seed=seed, init=init, dtype=dtype)

    def __str__(self) -> str:
        words = [f"local-{self.patches}x{self.patch_size}-{self.filters}-{self.outputs}"]
        if not self.is_linear:
            words.append(str(self.activation))
        if self.shared_weights:
            words.append("shared")
        return " ".join(words)

    @classmethod
    def parse(cls, text: str) -> LocallyConnected:
        """The network that a text names as ``str`` prints it.

        >>> LocallyConnected.parse("local-5x4-3-10 shared") == LocallyConnected(5, 4, 3, 10, shared_weights=True)
        True
        """
        first, activation, flags = read_words(text, flags=("shared",))
        sizes = re.fullmatch(r"local-(\d+)x(\d+)-(\d+)-(\d+)", first)
        if sizes is None:
            raise InvalidInput(sentence(_LOCAL_SHAPE, f"got {text!r}", _LOCAL_MEANING))
        patches, patch_size, filters, outputs = (int(size) for size in sizes.groups())
        return cls(patches, patch_size, filters, outputs, shared_weights="shared" in flags, activation=activation)
