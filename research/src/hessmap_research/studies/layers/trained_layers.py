"""The trained networks whose layers are looked at: by the paper's name, on a data set, by one recipe for each pair.

All are trained by SGD, in batches of 128 and from Glorot weights and zero biases unless the recipe says so. The digits
stay in [0, 1]; MNIST and Fashion-MNIST are standardised by one mean and deviation, CIFAR-10 by one for each colour.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from hessmap.errors import unknown_name

if TYPE_CHECKING:
    from torch import nn

    from hessmap.datasets import Data
    from hessmap.problem.problem import Problem
    from hessmap.records import TrainingRun

IMAGE_SHAPES = {"digits": (1, 8, 8), "mnist": (1, 28, 28), "fashion_mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
COMPARED = ("seeds", "recipes", "checkpoints")
LABELS = ("true", "random")
_SHARES = (0.25, 0.5, 1.0)
_SEED_OF_LABELS = 0
_ACCURACY_EVERY = 5  # epochs between looks at the accuracy, where training ends by it: a look costs as much as an epoch


@dataclass(frozen=True)
class Recipe:
    """How a network is trained, and on how many of its training samples (the first ones) its Hessians are taken."""

    num_train: int
    epochs: int
    num_measured: int
    learning_rate: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    stop_at_accuracy: float | None = None
    drop_rate_after: int | None = None
    has_random_labels: bool = False
    batch_size: int = 128
    init: str = "glorot"  # or "uniform", as torch itself draws: the paper says both
    keep_state: bool = False  # a longer training goes on from it


# Enough to see each phenomenon in seconds. A name that is not here takes the recipe under "".
_SMALL = {
    "digits": {
        "": Recipe(1400, 300, 1400),
        "BN": Recipe(1400, 60, 1400),
    },
    "mnist": {
        "": Recipe(5000, 60, 1500),
        "BN": Recipe(5000, 30, 1500),
        "LeNet5": Recipe(3000, 30, 1000, learning_rate=0.05),
    },
    "fashion_mnist": {
        "": Recipe(5000, 40, 1500),
        "BN": Recipe(5000, 30, 1500),
        "LeNet5": Recipe(3000, 30, 1000, learning_rate=0.05),
    },
    "cifar10": {
        "": Recipe(2000, 60, 1000, learning_rate=0.02, momentum=0.9),
    },
}
# Instead of the paper's 1,000 epochs without momentum: until every sample is right, with momentum.
_LARGE = {
    "mnist": {"": Recipe(60_000, 60, 2000, momentum=0.9, stop_at_accuracy=1.0)},
    "cifar10": {
        "ResNet18": Recipe(1000, 60, 100, momentum=0.9, stop_at_accuracy=1.0),
        "": Recipe(5000, 100, 300, momentum=0.9, stop_at_accuracy=1.0),
    },
}
# Deep convolutional networks of few channels, until all of a few hundred images are classified correctly.
_NARROW = {
    "cifar10": {
        "VGG11": Recipe(500, 60, 150, learning_rate=0.02, momentum=0.9, stop_at_accuracy=1.0, batch_size=32),
        "": Recipe(300, 40, 100, learning_rate=0.02, momentum=0.9, stop_at_accuracy=1.0, batch_size=32),
    }
}
# As published: all images, no momentum, 1,000 epochs, Hessians on all images.
_PUBLISHED = {
    data: {"": Recipe(number, 1000, number, keep_state=True)}
    for data, number in (("mnist", 60_000), ("cifar10", 50_000))
}
# All images with a momentum that takes steps ten times as long: 100 epochs go as far as 1,000 without. The noise keeps
# LeNet5, with hardly more parameters than images, from fitting these: its last 30 epochs have a tenth of the rate,
# and so the noise of the published training. Fully connected networks end with 99.9 % of the images.
_PHOTOGRAPHS = Recipe(50_000, 90, 50_000, momentum=0.9, drop_rate_after=60)
_LONG = {
    "mnist": {"": Recipe(60_000, 100, 60_000, momentum=0.9, keep_state=True)},
    "cifar10": {
        "F-": replace(_PHOTOGRAPHS, num_measured=2000, stop_at_accuracy=0.999),
        "": replace(_PHOTOGRAPHS, keep_state=True),
    },
}
_RECIPES = {"small": _SMALL, "large": _LARGE, "narrow": _NARROW, "long": _LONG, "published": _PUBLISHED}


def recipe_for(network: str, data: str, size: str = "small", **changes: Any) -> Recipe:
    """The recipe for a network ("F-100^2", "LeNet5", "F-200^2-BN") on a data set, with some of its fields changed."""
    if size not in _RECIPES:
        raise unknown_name("size of a recipe", size, _RECIPES)
    if data not in _RECIPES[size]:
        raise unknown_name(f"data set of {size} recipes", data, _RECIPES[size])
    known = _RECIPES[size][data]
    family = next((name for name in known if name and network.startswith(name)), "")
    if not family and network.endswith("-BN"):
        family = "BN"
    return replace(known.get(family, known[""]), **changes)


@dataclass(frozen=True)
class ZooNetwork:
    """A network of the zoo for images of a shape, trained in single precision."""

    name: str
    image_shape: tuple[int, int, int]
    num_classes: int = 10

    def build(self, seed: int = 0, init: str = "glorot") -> nn.Module:
        import torch

        from hessmap_research.instruments.zoo import zoo_network

        return zoo_network(self.name, self.image_shape, self.num_classes, seed=seed, init=init, dtype=torch.float32)


class TrainedLayers(NamedTuple):
    """A trained network on the samples on which its Hessians are taken, and the history of its training."""

    problem: Problem
    run: TrainingRun


def trained_layers(network: str, data: str, *, seed: int = 0, recipe: Recipe | None = None) -> TrainedLayers:
    """The network of that name trained on the data set, or taken from the cache, with cross-entropy on its samples.

    ``recipe`` is by default ``recipe_for(network, data)``.
    """
    from hessmap_research.studies.trained_networks import trained_network

    how = recipe or recipe_for(network, data)
    samples = training_samples(data, how.num_train, how.has_random_labels)
    options: dict[str, Any] = {
        "epochs": how.epochs,
        "batch_size": how.batch_size,
        "learning_rate": how.learning_rate,
        "momentum": how.momentum,
        "weight_decay": how.weight_decay,
        "stop_at_accuracy": how.stop_at_accuracy,
        "record_every": _ACCURACY_EVERY if how.stop_at_accuracy is not None else how.epochs,
        "keep_state": how.keep_state,
    }
    if how.drop_rate_after is not None:
        options["drop_rate_after"] = how.drop_rate_after
    architecture = ZooNetwork(network, IMAGE_SHAPES[data])
    every = 1 if how.keep_state else 10  # epochs of these take ten seconds and more: a killed training loses one
    model, run = trained_network(architecture, samples, seed=seed, init=how.init, checkpoint_every=every, **options)
    return TrainedLayers(_problem(model, samples, how), run)


def untrained_layers(network: str, data: str, *, seed: int = 0, recipe: Recipe | None = None) -> Problem:
    """The same network before its first step, on the same samples."""
    how = recipe or recipe_for(network, data)
    samples = training_samples(data, how.num_train, how.has_random_labels)
    model = ZooNetwork(network, IMAGE_SHAPES[data]).build(seed=seed, init=how.init)
    return _problem(model, samples, how)


def _problem(model: nn.Module, samples: Data, recipe: Recipe) -> Problem:
    """In float64 also above a million parameters, where a problem keeps the model's own precision by default."""
    import torch

    from hessmap.problem.problem import Problem

    measured = (part[: recipe.num_measured].clone() for part in samples)
    return Problem(model, "cross_entropy", *measured, dtype=torch.float64)


def compared_model(network: str, data: str, labels: str, compared: str, number: int) -> Problem:
    """A model of those that differ in their ``seeds``, in seeds and ``recipes``, or are ``checkpoints`` of one.

    There are three recipes, as in the paper: one, a tenth of its learning rate, and momentum 0.9 with weight decay
    5e-4; and three checkpoints, after a quarter, half and all of the epochs.
    """
    recipe = first_recipe(network, data, labels)
    if compared == "recipes":
        recipe = _recipes(recipe)[number]
    elif compared == "checkpoints":
        recipe = replace(recipe, epochs=round(_SHARES[number] * recipe.epochs))
    elif compared != "seeds":
        raise unknown_name("what is compared", compared, COMPARED)
    seed = 0 if compared == "checkpoints" else number
    return trained_layers(network, data, seed=seed, recipe=recipe).problem


def first_recipe(network: str, data: str, labels: str) -> Recipe:
    """Random labels need more steps than samples of true ones: 700 digits, 600 epochs at ten times the rate."""
    if labels not in LABELS:
        raise unknown_name("labels", labels, LABELS)
    if labels == "true":
        return recipe_for(network, data)
    return recipe_for(
        network, data, num_train=700, num_measured=700, epochs=600, learning_rate=0.1, has_random_labels=True
    )


def _recipes(first: Recipe) -> tuple[Recipe, Recipe, Recipe]:
    slow = replace(first, learning_rate=first.learning_rate / 10)
    return first, slow, replace(first, momentum=0.9, weight_decay=5e-4)


@lru_cache(maxsize=1)
def training_samples(data: str, num_train: int, has_random_labels: bool = False) -> Data:
    """The first training samples with flat inputs; random labels are the same for every network.

    The last ones stay in memory: to read and standardise 50,000 images takes as long as an epoch.
    """
    from hessmap.datasets import Data, by_name, random_labels

    if data not in IMAGE_SHAPES:
        raise unknown_name("data set of layers", data, IMAGE_SHAPES)
    options: dict[str, Any] = {"grayscale": False} if data == "cifar10" else {}
    samples = by_name(data, num_samples=num_train, **options)
    if data != "digits":
        samples = Data(_standardise(samples.inputs, IMAGE_SHAPES[data][0]), samples.targets)
    return random_labels(samples, 10, seed=_SEED_OF_LABELS) if has_random_labels else samples


def _standardise(inputs: Any, num_channels: int) -> Any:
    """Each colour minus its mean over all pixels and samples, over its deviation."""
    colours = inputs.reshape(len(inputs), num_channels, -1)
    centred = colours - colours.mean(dim=(0, 2), keepdim=True)
    return (centred / colours.std(dim=(0, 2), keepdim=True, correction=0)).reshape(inputs.shape)
