"""One-dimensional convolutional networks as plain, frozen descriptions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hessmap.errors import InvalidInput, checked_count, sentence
from hessmap.networks.activations import Activation, activation_of
from hessmap.networks.arguments import Bias, checked_bias, checked_counts, marked_bias, read_words
from hessmap.networks.convolutions import Convolutions, check_kernel_fits, positions_after

if TYPE_CHECKING:
    import torch
    from torch import nn

_SHAPE = "a convolutional network must be written as 'conv-1x20-8x3-16x3-10' or 'conv-1x20-8x3/2+1-10 relu bias'"
_MEANING = (
    "That is 1 channel of length 20, then 8 filters of 3 taps (/2: stride 2, +1: padding 1), ..., then 10 outputs;"
    " a b behind a layer, as in '8x3b', gives this layer a bias"
)


@dataclass(frozen=True, init=False)
class Convolutional(Convolutions):
    """Convolutions over inputs of ``channels[0]`` channels and ``input_length`` positions, then one dense layer.

    Convolution l has ``channels[l]`` filters of ``kernels[l - 1]`` taps, has stride ``strides[l - 1]`` (default 1) and
    ``paddings[l - 1]`` zeros (default 0) on either side; the activation follows each of them. ``bias`` holds for
    every layer, or says for each layer whether it has one, the dense one last. Inputs are flat,
    (num_samples, channels[0] * input_length), channel by channel.

    >>> net = Convolutional(20, channels=(1, 8, 16), kernels=(3, 3), strides=(1, 2), outputs=10)
    >>> print(net)
    conv-1x20-8x3-16x3/2-10
    >>> net.lengths, net.num_layers, net.num_parameters
    ((20, 18, 8), 3, 1688)
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
        checked_kernels = checked_counts("kernels", kernels)
        num_convolutions = len(checked_kernels)
        fields: dict[str, object] = {
            "input_length": checked_count("input_length", input_length),
            "channels": checked_counts("channels", channels),
            "kernels": checked_kernels,
            "strides": (1,) * num_convolutions if strides is None else checked_counts("strides", strides),
            "outputs": checked_count("outputs", outputs),
            "bias": checked_bias(bias, num_convolutions + 1),
            "activation": activation_of(activation),
            "paddings": (0,) * num_convolutions if paddings is None else checked_counts("paddings", paddings, 0),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self._check_fit()

    def _check_fit(self) -> None:
        """One kernel, stride and padding per convolution, and every kernel within its input."""
        self._check_counts(len(self.kernels))
        for place, (length, kernel, padding) in enumerate(zip(self.lengths, self.kernels, self.paddings, strict=False)):
            check_kernel_fits(f"kernels[{place}]", kernel, length, padding)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Positions of the input and after each convolution: (length + 2 padding - kernel) // stride + 1."""
        lengths = [self.input_length]
        for kernel, stride, padding in zip(self.kernels, self.strides, self.paddings, strict=True):
            lengths.append(positions_after(lengths[-1], kernel, stride, padding))
        return tuple(lengths)

    @property
    def positions(self) -> tuple[int, ...]:
        return self.lengths

    @property
    def taps(self) -> tuple[int, ...]:
        return self.kernels

    def build(self, seed: int = 0, init: str = "gaussian", dtype: torch.dtype | None = None) -> nn.Sequential:
        """Unflatten, Conv1d, activation, ..., Flatten, Linear, its parameters drawn from ``seed`` alone.

        ``init`` and ``dtype`` as for ``FullyConnected.build``; fan_in is channels times taps. The parameters are
        "1.weight", "3.weight", ..., the dense layer's number one higher for the Flatten before it.

        >>> [name for name, _ in Convolutional(5, (1, 2, 2), (2, 2)).build(seed=0).named_parameters()]
        ['1.weight', '3.weight', '6.weight']
        """
        from hessmap.networks.construction import build_convolutional

        return build_convolutional(self, seed=seed, init=init, dtype=dtype)

    def __str__(self) -> str:
        return self._text(f"{self.channels[0]}x{self.input_length}", tuple(map(str, self.kernels)))

    @classmethod
    def parse(cls, text: str) -> Convolutional:
        """The network that a text names as ``str`` prints it.

        >>> Convolutional.parse("conv-1x20-8x3-16x3/2-10 relu") == Convolutional(
        ...     20, (1, 8, 16), (3, 3), (1, 2), outputs=10, activation="relu")
        True
        """
        first, activation, flags = read_words(text, flags=("bias",))
        prefix, *parts = first.split("-")
        layers = [re.fullmatch(r"(\d+)x(\d+)(?:/(\d+))?(?:\+(\d+))?b?", part) for part in parts[:-1]]
        outputs = parts[-1].removesuffix("b") if parts else ""
        is_readable = prefix == "conv" and len(layers) >= 2 and all(layers) and outputs.isdecimal()
        if not is_readable or "/" in parts[0] or "+" in parts[0]:
            raise InvalidInput(sentence(_SHAPE, f"got {text!r}", _MEANING))
        (channels, length, _, _), *rest = (layer.groups() for layer in layers if layer is not None)
        return cls(
            int(length),
            channels=(int(channels), *(int(filters) for filters, _, _, _ in rest)),
            kernels=[int(kernel) for _, kernel, _, _ in rest],
            strides=[int(stride or 1) for _, _, stride, _ in rest],
            outputs=int(outputs),
            bias=marked_bias(parts, "bias" in flags),
            activation=activation,
            paddings=[int(padding or 0) for _, _, _, padding in rest],
        )
