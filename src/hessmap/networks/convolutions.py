"""What convolutional networks of one and of two dimensions have in common: counts of units and parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING

from hessmap.errors import require
from hessmap.networks.activations import Activation
from hessmap.networks.arguments import Bias, layer_biases

if TYPE_CHECKING:
    import torch
    from torch import nn


class Convolutions(ABC):
    """Convolutions over ``channels[0]`` channels with an activation after each, then one dense layer.

    A kind of network says what its kernels are: ``positions`` of the input and after each convolution, and the
    ``taps`` of each filter for one channel.
    """

    channels: tuple[int, ...]
    strides: tuple[int, ...]
    outputs: int
    bias: Bias
    activation: Activation
    paddings: tuple[int, ...]

    @property
    @abstractmethod
    def positions(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def taps(self) -> tuple[int, ...]: ...

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

    @abstractmethod
    def build(self, seed: int = 0, init: str = "gaussian", dtype: torch.dtype | None = None) -> nn.Sequential: ...

    def _check_counts(self, num_convolutions: int) -> None:
        """One number of channels, stride and padding per convolution."""
        require(num_convolutions >= 1, "a convolutional network has at least one convolution", "kernels is empty")
        begin = "Begin with the channels of the input"
        for name, extra, remedy in (("channels", 1, begin), ("strides", 0, ""), ("paddings", 0, "")):
            given = getattr(self, name)
            must = f"{name} must hold {num_convolutions + extra} integers for {num_convolutions} kernels"
            require(len(given) == num_convolutions + extra, must, f"got {given}", remedy)

    def _text(self, entering: str, kernels: tuple[str, ...]) -> str:
        """The network as a text: its input, its filters with stride, padding and bias, its outputs, and words."""
        parts = ["conv", entering]
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


def check_kernel_fits(name: str, kernel: int, length: int, padding: int) -> None:
    padded = f"{length} positions" + (f" and 2 * {padding} zeros" if padding else "")
    must = "a kernel must fit into its input"
    require(kernel <= length + 2 * padding, must, f"{name} is {kernel}, its input has {padded}")
