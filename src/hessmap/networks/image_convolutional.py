"""Two-dimensional convolutional networks as plain, frozen descriptions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hessmap.errors import require
from hessmap.networks.activations import Activation
from hessmap.networks.arguments import Bias, checked_counts
from hessmap.networks.convolutions import Convolutions, read_convolutions

Pair = tuple[int, int]
_SHAPE = "a network on images must be written as 'conv-3x32x32-16x3x3-10' or 'conv-1x8x8-8x3x3/2+1-10 relu bias'"
_MEANING = (
    "That is 3 channels of 32 by 32 pixels, then 16 filters of 3 by 3 taps (/2: stride 2, +1: padding 1), ..., then 10"
    " outputs; a b behind a layer, as in '16x3x3b', gives this layer a bias"
)


@dataclass(frozen=True, init=False)
class ImageConvolutional(Convolutions):
    """Convolutions over images of ``channels[0]`` channels and ``input_size`` pixels, then one dense layer.

    Convolution l has ``channels[l]`` filters of ``kernels[l - 1]`` taps, an integer for a square or (height, width),
    and has stride ``strides[l - 1]`` (default 1) and ``paddings[l - 1]`` zeros (default 0) on every side; the
    activation follows each of them. ``bias`` holds for every layer, or says for each layer whether it has one, the
    dense one last. Inputs are flat, (num_samples, channels[0] * height * width), channel by channel and row by row.

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
        (height, width), others = read_convolutions(text, 2, _SHAPE, _MEANING)
        return cls((height, width), **others)


def _checked_pair(name: str, value: object) -> Pair:
    """(height, width); an integer is a square.

    >>> _checked_pair("input_size", 8)
    (8, 8)
    """
    pair = checked_counts(name, value if isinstance(value, tuple | list) else (value, value))
    require(len(pair) == 2, f"{name} must be an integer or (height, width)", f"got {value!r}")
    return pair[0], pair[1]
