"""What convolutional networks of one and of two dimensions have in common: their fields, sizes, counts and text."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

from hessmap.errors import InvalidInput, checked_count, require, sentence
from hessmap.networks.activations import Activation, activation_of
from hessmap.networks.arguments import Bias, checked_bias, checked_counts, layer_biases, marked_bias, read_words

if TYPE_CHECKING:
    import torch
    from torch import nn


class Convolutions(ABC):
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
    def biases(self) -> tuple[bool, ...]:
        """Layer by layer whether there is a bias."""
        return layer_biases(self.bias, self.num_layers)

    @property
    def has_bias(self) -> bool:
        """Whether some layer has a bias."""
        return bool(self.bias)

    @property
    def num_parameters(self) -> int:
        return sum(self.layer_parameters)

    @property
    def is_linear(self) -> bool:
        return self.activation == "identity"

    def build(self, seed: int = 0, init: str = "gaussian", dtype: torch.dtype | None = None) -> nn.Sequential:
        """Unflatten, Conv1d or Conv2d, activation, ..., Flatten, Linear, its parameters drawn from ``seed`` alone.

        ``init`` and ``dtype`` as for ``FullyConnected.build``; fan_in is channels times taps. The parameters are
        "1.weight", "3.weight", ..., the dense layer's number one higher for the Flatten before it.
        """
        from hessmap.networks.construction import build_convolutions

        return build_convolutions(self, seed=seed, init=init, dtype=dtype)

    def _check_counts(self, num_convolutions: int) -> None:
        """One number of channels, stride and padding per convolution."""
        require(num_convolutions >= 1, "a convolutional network has at least one convolution", "kernels is empty")
        begin = "Begin with the channels of the input"
        for name, extra, remedy in (("channels", 1, begin), ("strides", 0, ""), ("paddings", 0, "")):
            given = getattr(self, name)
            must = f"{name} must hold {num_convolutions + extra} integers for {num_convolutions} kernels"
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
