"""One-dimensional convolutional networks as plain, frozen descriptions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hessmap.errors import checked_count
from hessmap.networks.activations import Activation
from hessmap.networks.arguments import Bias, checked_counts
from hessmap.networks.convolutions import Convolutions, read_convolutions

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
