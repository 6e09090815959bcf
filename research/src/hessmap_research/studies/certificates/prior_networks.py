"""Networks whose prior is learnt from a part of the samples: what they are, on what and how they are trained."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from hessmap.errors import unknown_name

if TYPE_CHECKING:
    from torch import nn

    from hessmap.datasets import Data

_SHAPES = {
    "digits": (1, 8, 8),
    "mnist": (1, 28, 28),
    "fashion_mnist": (1, 28, 28),
    "cifar10": (3, 32, 32),
}
_NUM_TRAIN_DIGITS = 1500
_SEED_OF_DIGITS = 0


@dataclass(frozen=True)
class PlainNetwork:
    """Fully connected with ReLU and biases, in single precision."""

    widths: tuple[int, ...]

    def build(self, seed: int = 0, init: str = "kaiming") -> nn.Module:
        import torch

        from hessmap.networks import FullyConnected

        return FullyConnected(self.widths, bias=True, activation="relu").build(seed, init, dtype=torch.float32)


@dataclass(frozen=True)
class SmallConvolutional:
    """Convolutions of 3 x 3 with ReLU, halved by their largest values or by their strides, then one linear layer."""

    shape: tuple[int, int, int]
    channels: tuple[int, ...]
    num_classes: int = 10
    is_strided: bool = False

    def build(self, seed: int = 0, init: str = "kaiming") -> nn.Module:
        import torch
        from torch import nn

        from hessmap.networks.build import initialise

        size, (before, height, width) = len(self.channels), self.shape
        parts: list[nn.Module] = [nn.Unflatten(1, self.shape)]
        for channels in self.channels:
            stride = 2 if self.is_strided else 1
            parts += [nn.Conv2d(before, channels, 3, stride, padding=1), nn.ReLU()]
            parts += [] if self.is_strided else [nn.MaxPool2d(2)]
            before = channels
        parts += [nn.Flatten(), nn.Linear(before * (height >> size) * (width >> size), self.num_classes)]
        network, generator = nn.Sequential(*parts), torch.Generator().manual_seed(seed)
        for part in parts:
            if isinstance(part, nn.Conv2d | nn.Linear):
                initialise(part, init, generator)
        return network.to(torch.float32)


class Recipe(NamedTuple):
    """How a prior is trained: epochs over its own part, and whether the images are moved and bent."""

    epochs: int
    is_augmented: bool


ARCHITECTURES = ("fc-100", "fc-600^3", "cnn-16-32", "cnn-32-64-128", "strided-8-16", "strided-16-32")


def architecture(name: str, data: str) -> PlainNetwork | SmallConvolutional:
    """By name: hidden widths after "fc-" (a power repeats one), channels after "cnn-" and "strided-"."""
    if name not in ARCHITECTURES:
        raise unknown_name("network", name, ARCHITECTURES)
    kind, _, rest = name.partition("-")
    if kind != "fc":
        return SmallConvolutional(_SHAPES[data], tuple(map(int, rest.split("-"))), is_strided=kind == "strided")
    width, _, depth = rest.partition("^")
    return PlainNetwork((_num_pixels(data), *[int(width)] * int(depth or 1), 10))


def _num_pixels(data: str) -> int:
    """What a fully connected network sees: photographs in grey."""
    _, height, width = _SHAPES[data]
    return height * width


def has_colours(network: str, data: str) -> bool:
    """Whether a network sees all channels of photographs."""
    return data == "cifar10" and not network.startswith("fc-")


@lru_cache(maxsize=1)
def samples(data: str, has_colours: bool = False, num_images: int | None = None) -> tuple[Data, Data]:
    """The training samples, all or so many, and the test samples (a sixth as many), in single precision and scaled by
    constants alone; read once for the cases of a run that follow each other."""
    from hessmap.datasets import Data, by_name, subsample

    if data == "digits":
        shuffled = subsample(by_name(data), None, seed=_SEED_OF_DIGITS)
        cuts = (slice(None, _NUM_TRAIN_DIGITS), slice(_NUM_TRAIN_DIGITS, None))
        parts = [Data(shuffled.inputs[some], shuffled.targets[some]) for some in cuts]
    else:
        colours = {"grayscale": False} if has_colours else {}
        parts = [by_name(data, split=split, **colours) for split in ("train", "test")]
    if num_images is not None:
        parts = [subsample(part, size, seed=0) for part, size in zip(parts, (num_images, num_images // 6), strict=True)]
    train, test = (Data(part.inputs.float(), part.targets) for part in parts)
    return train, test


def trained_prior(network: str, data: str, part: Data, recipe: Recipe, seed: int) -> nn.Module:
    """The network trained on a part of the samples, from the cache of models where it is there."""
    from hessmap.datasets import ImageAugmentation
    from hessmap_research.studies.trained_networks import trained_network

    options: dict[str, Any] = {
        "optimiser": "adam",
        "learning_rate": 1e-3,
        "batch_size": 128 if data != "digits" else 32,
    }
    if recipe.is_augmented:
        options["augmentation"] = _augmentation(data, ImageAugmentation)
    return trained_network(
        architecture(network, data),
        part,
        seed=seed,
        init="kaiming",
        epochs=recipe.epochs,
        drop_rate_after=max(1, round(0.75 * recipe.epochs)),
        record_every=recipe.epochs,
        checkpoint_every=2,
        num_threads=1,
        **options,
    ).model


def _augmentation(data: str, kind: Any) -> Any:
    """Handwriting may be turned, sheared and bent; clothes and photographs are shifted and mirrored."""
    if data in ("mnist", "digits"):
        shift, elastic = (2.0, 1.0) if data == "mnist" else (0.7, 0.3)
        return kind(_SHAPES[data], rotation=12.0, scale=0.12, shear=0.15, shift=shift, elastic=elastic)
    return kind(_SHAPES[data], rotation=5.0, scale=0.08, shear=0.05, shift=2.0, elastic=0.0, mirror=True)
