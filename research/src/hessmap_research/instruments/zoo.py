"""The networks of Wu et al. 2022 ("Dissecting Hessian", appendix E.2) by the names that the paper gives them.

- "F-200^2": fully connected, two hidden layers of 200; "F-200^2-100": and a third of 100;
- "LeNet5", "LeNet5-(fc1-80)", "LeNet5-(conv2-32)": without padding, max-pooling, and with other layer sizes;
- "VGG11-W32": eight 3x3 convolutions of 32 channels, five max-poolings, one linear layer; "VGG11": as published;
- "ResNet18-W48": residual blocks of 48 channels without normalisation; 1x1 convolutions where the image shrinks;
- any of the first three with "-BN": batch-norm without scale and shift after every ReLU.

Layers carry the paper's names: fc1, fc2, .., conv1, conv2, .., and sc-conv1 .. sc-conv3 on the shortcuts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from hessmap.errors import InvalidInput, require, sentence
from hessmap.networks import initialise

Shape = tuple[int, int, int]
Layers = Iterator[tuple[str, nn.Module]]

_LENET_SIZES = {"conv1": 6, "conv2": 16, "fc1": 120, "fc2": 84}
# Output channels of the published network, and how many convolutions stand before each pooling.
_VGG_CHANNELS = (64, 128, 256, 256, 512, 512, 512, 512)
_VGG_POOLED = (1, 2, 4, 6, 8)
# Of the four stages of a residual network, two blocks of two convolutions each.
_STRIDES = (1, 2, 2, 2)
_EXAMPLES = "F-200^2, LeNet5, LeNet5-(fc1-80), VGG11-W32, ResNet18-W48, F-200^2-BN"


def zoo_network(
    name: str,
    image_shape: Shape = (1, 28, 28),
    num_classes: int = 10,
    *,
    seed: int = 0,
    init: str = "glorot",
    dtype: torch.dtype = torch.float64,
) -> nn.Module:
    """The network of that name for flat inputs of channels x height x width entries, as the data sets give them.

    Everything is drawn from ``seed`` alone. The paper says two things of its initialisation that do not agree: "the
    default initialization scheme of PyTorch", and Glorot's with zero biases (appendix E.3). ``init`` "glorot" is the
    second, "uniform" the first: the law of ``nn.Linear`` and ``nn.Conv2d``, of LeNet5 0.4 to 0.8 of the deviation
    of the other. As the paper says, batch-norm stands after ReLU. Convolutions of residual networks have no bias,
    as in the code that the paper adapts.

    >>> network = zoo_network("LeNet5", (3, 32, 32))
    >>> [name for name, _ in network.named_parameters()][:4]
    ['conv1.weight', 'conv1.bias', 'conv2.weight', 'conv2.bias']
    >>> sum(parameter.numel() for parameter in network.parameters())
    62006
    """
    require(num_classes >= 1, "num_classes must be at least 1", f"got {num_classes}")
    is_shape = len(image_shape) == 3 and all(isinstance(size, int) and size >= 1 for size in image_shape)
    require(is_shape, "image_shape must be three positive sizes (channels, height, width)", f"got {image_shape}")
    with torch.device("meta"):  # torch draws nothing there, and its global random state stays as it is
        network = _family(name)(image_shape, num_classes)
    _draw_weights(network.to_empty(device="cpu"), seed, init)
    return network.to(dtype)


def _family(name: str) -> Callable[[Shape, int], nn.Module]:
    base, has_norm = (name[:-3], True) if name.endswith("-BN") else (name, False)
    if re.fullmatch(r"F(-\d+(\^\d+)?)+", base):
        return lambda shape, classes: _fully_connected(name, _hidden_widths(base), has_norm, shape, classes)
    if re.fullmatch(r"LeNet5(-\((conv1|conv2|fc1|fc2)-\d+\))*", base):
        sizes = _LENET_SIZES | {layer: int(size) for layer, size in re.findall(r"\((\w+)-(\d+)\)", base)}
        return lambda shape, classes: _lenet(name, sizes, has_norm, shape, classes)
    if match := re.fullmatch(r"VGG11(?:-W(\d+))?", base):
        channels = (int(match[1]),) * 8 if match[1] else _VGG_CHANNELS
        return lambda shape, classes: _vgg(name, channels, has_norm, shape, classes)
    if not has_norm and (match := re.fullmatch(r"ResNet18-W(\d+)", base)):
        width = int(match[1])
        return lambda shape, classes: _residual(width, shape, classes)
    raise InvalidInput(sentence("a network must have a name of the zoo", f"got {name!r}", f"Examples: {_EXAMPLES}"))


def _hidden_widths(base: str) -> list[int]:
    """The widths that "F-200^2-100" spells: 200, 200, 100."""
    groups = [part.split("^") for part in base.split("-")[1:]]
    return [int(width) for width, *power in groups for _ in range(int(power[0]) if power else 1)]


@dataclass
class _Image:
    """Names layers in the order they are asked for, and keeps the shape of what they hand on."""

    name: str
    shape: Shape
    has_norm: bool
    num_convolutions: int = 0
    num_dense: int = 0
    num_inputs: int = 0

    def convolution(self, channels: int, kernel: int, padding: int = 0) -> Layers:
        self.num_convolutions += 1
        layer = f"conv{self.num_convolutions}"
        height, width = (size + 2 * padding - kernel + 1 for size in self.shape[1:])
        self._require_room(layer, min(height, width))
        yield layer, nn.Conv2d(self.shape[0], channels, kernel, padding=padding)
        self.shape = (channels, height, width)
        yield f"relu_{layer}", nn.ReLU()
        if self.has_norm:
            yield f"norm_{layer}", nn.BatchNorm2d(channels, affine=False)

    def pooling(self) -> Layers:
        layer = f"maxpool_conv{self.num_convolutions}"
        height, width = (size // 2 for size in self.shape[1:])
        self._require_room(layer, min(height, width))
        yield layer, nn.MaxPool2d(2)
        self.shape = (self.shape[0], height, width)

    def flat(self) -> Layers:
        self.num_inputs = prod(self.shape)
        yield "flatten", nn.Flatten()

    def dense(self, width: int, is_last: bool = False) -> Layers:
        self.num_dense += 1
        layer = f"fc{self.num_dense}"
        yield layer, nn.Linear(self.num_inputs, width)
        self.num_inputs = width
        if not is_last:
            yield f"relu_{layer}", nn.ReLU()
            if self.has_norm:
                yield f"norm_{layer}", nn.BatchNorm1d(width, affine=False)

    def _require_room(self, layer: str, size: int) -> None:
        require(size >= 1, f"{self.name} needs larger images", f"{layer} meets one of {self.shape[1:]} pixels")


def _fully_connected(name: str, widths: list[int], has_norm: bool, shape: Shape, num_classes: int) -> nn.Module:
    image = _Image(name, shape, has_norm, num_inputs=prod(shape))
    layers = [layer for width in widths for layer in image.dense(width)]
    return _sequence([*layers, *image.dense(num_classes, is_last=True)])


def _lenet(name: str, sizes: dict[str, int], has_norm: bool, shape: Shape, num_classes: int) -> nn.Module:
    image = _Image(name, shape, has_norm)
    layers: list[tuple[str, nn.Module]] = [("image", nn.Unflatten(1, shape))]
    for channels in (sizes["conv1"], sizes["conv2"]):
        layers += [*image.convolution(channels, kernel=5), *image.pooling()]
    layers += image.flat()
    for width in (sizes["fc1"], sizes["fc2"]):
        layers += image.dense(width)
    return _sequence([*layers, *image.dense(num_classes, is_last=True)])


def _vgg(name: str, channels: tuple[int, ...], has_norm: bool, shape: Shape, num_classes: int) -> nn.Module:
    image = _Image(name, shape, has_norm)
    layers: list[tuple[str, nn.Module]] = [("image", nn.Unflatten(1, shape))]
    for position, width in enumerate(channels, start=1):
        layers += image.convolution(width, kernel=3, padding=1)
        if position in _VGG_POOLED:
            layers += image.pooling()
    layers += image.flat()
    return _sequence([*layers, *image.dense(num_classes, is_last=True)])


def _sequence(layers: list[tuple[str, nn.Module]]) -> nn.Sequential:
    network = nn.Sequential()
    for name, layer in layers:
        network.add_module(name, layer)
    return network


class _Residual(nn.Module):
    """conv1, then eight blocks x -> relu(x' + conv(relu(conv(x)))), x' = x or a 1x1 convolution; mean; fc1."""

    def __init__(self, width: int, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.add_module("conv1", nn.Conv2d(image_shape[0], width, 3, padding=1, bias=False))
        for index in range(16):
            stride = _STRIDES[index // 4] if index % 4 == 0 else 1
            convolution = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
            self.add_module(f"conv{index + 2}", convolution)
        for index in (1, 2, 3):
            self.add_module(f"sc-conv{index}", nn.Conv2d(width, width, 1, stride=_STRIDES[index], bias=False))
        self.add_module("fc1", nn.Linear(width, num_classes))

    def forward(self, inputs: Tensor) -> Tensor:
        layer = self.get_submodule
        hidden: Tensor = layer("conv1")(inputs.reshape(-1, *self.image_shape)).relu()
        for block in range(8):
            stage, place = divmod(block, 2)
            shortcut = layer(f"sc-conv{stage}")(hidden) if stage and not place else hidden
            inside = layer(f"conv{2 * block + 2}")(hidden).relu()
            hidden = (shortcut + layer(f"conv{2 * block + 3}")(inside)).relu()
        logits: Tensor = layer("fc1")(hidden.mean((2, 3)))
        return logits


def _residual(width: int, image_shape: tuple[int, int, int], num_classes: int) -> nn.Module:
    """He et al. 2016 as adapted to small images: a first 3x3 convolution of stride 1 and no pooling before the mean."""
    require(width >= 1, "a residual network needs at least one channel", f"got {width}")
    return _Residual(width, image_shape, num_classes)


@torch.no_grad()
def _draw_weights(network: nn.Module, seed: int, init: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            initialise(layer, init, generator)
            if init == "glorot" and layer.bias is not None:
                layer.bias.zero_()
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.reset_running_stats()
