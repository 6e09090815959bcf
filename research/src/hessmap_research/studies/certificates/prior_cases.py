"""Which networks, samples and posteriors the study of priors from data takes, and why each."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from hessmap_research.runner.study import Case, grid

FRACTIONS = (0.0, 0.1, 0.25, 0.5, 0.7, 0.9)
# Posteriors by name: the basis of a fit and what it lowers; "prior" is no posterior but the prior itself, without
# divergence. "moved": at a larger divergence than the slope of the bound leads to.
FITS: dict[str, tuple[str, Literal["bound", "pinsker"]]] = {
    "prior": ("standard", "bound"),
    "standard": ("standard", "bound"),
    "approximate": ("approximate", "bound"),
    "iterative": ("iterative", "bound"),
    "iterative_activity": ("iterative_activity", "bound"),
    "moved": ("iterative", "pinsker"),
}
BASES = ("standard", "approximate", "iterative", "iterative_activity")
CONVOLUTIONAL_BASES = BASES[:3]  # activities are of the weights behind a layer, in fully connected networks
REPORTED_SEED = 0
SOME_IMAGES = 12_000
# What decides first: a tenth, where much is left to learn from the other samples, then half, then the rest.
_ORDER = (0.1, 0.5, 0.25, 0.0, 0.9, 0.7)


class Choice(NamedTuple):
    """How the fraction of a data set is chosen: a network, fractions, and the trainings that choose, none reported."""

    network: str
    fractions: tuple[float, ...]
    seeds: tuple[int, ...]
    chosen: float | None  # the fraction with the lowest mean bound over these trainings, once they were run


CHOICES = {
    "fashion_mnist": Choice("fc-100", (0.25, 0.5, 0.7, 0.9), (1,), 0.7),
    "cifar10": Choice("strided-16-32", (0.25, 0.5, 0.7, 0.9), (1,), 0.9),
}
_CONVOLUTIONAL = {"mnist": "strided-8-16", "fashion_mnist": "strided-8-16", "cifar10": "strided-16-32"}


def cases(data: str) -> tuple[Case, ...]:
    """Small networks at every fraction and in every basis, on a subset of the images that keeps all of them affordable;
    a few on all images; on MNIST also the large ones, whose numbers are compared."""
    if data == "digits":
        common = _common(epochs=60, iterations=600, draws=50_000) | {"fraction": FRACTIONS, "seed": range(2)}
        plain = grid(network=["fc-100"], posterior=("prior", *BASES), **common)
        return (*plain, *grid(network=["cnn-16-32"], posterior=("prior", *CONVOLUTIONAL_BASES), **common))
    some = tuple(case for fraction in _ORDER for case in _on_some_images(data, fraction))
    if data == "mnist":
        return (*_compared_with_the_literature(), *_on_all_images(data), *some)
    return (*some, *_on_all_images(data), *_choice_of_fraction(data), *_with_pooling(data))


def _with_pooling(data: str) -> tuple[Case, ...]:
    """All CIFAR-10 images in a larger convolutional network, next to the smaller ones."""
    common = _common(epochs=6, iterations=0, draws=0) | {"posterior": ["prior"], "seed": [1]}
    return grid(network=["cnn-16-32"], fraction=[0.25], **common) if data == "cifar10" else ()


def _on_all_images(data: str) -> tuple[Case, ...]:
    """A prior from a tenth: most samples are left, so that a divergence has the best chance to pay."""
    common = _common(prior_epochs(0.1, 3), iterations=400, draws=20_000) | {"seed": [1], "fraction": [0.1]}
    return grid(network=["fc-100"], posterior=("standard", "iterative", "moved"), **common)


def _on_some_images(data: str, fraction: float) -> tuple[Case, ...]:
    """All fitted posteriors of one prior, fully connected and convolutional; "moved" ones from a tenth of the samples.

    The held-out bound of the prior stands in every record.
    """
    common = _common(prior_epochs(fraction, 12), iterations=400, draws=20_000)
    common |= {"seed": [1], "fraction": [fraction], "images": [SOME_IMAGES]}
    moved = ("moved",) if fraction == 0.1 else ()
    plain = grid(network=["fc-100"], posterior=(*BASES, *moved), **common)
    images = grid(network=[_CONVOLUTIONAL[data]], posterior=(*CONVOLUTIONAL_BASES, *moved), **common)
    return (*plain, *images)


def prior_epochs(fraction: float, whole: int) -> int:
    """As many steps for a small part as for a large one: a prior that was not trained to its end would be easy to beat.

    >>> [prior_epochs(fraction, 3) for fraction in (0.1, 0.5, 0.9)]
    [30, 6, 3]
    """
    return round(whole / fraction) if fraction else whole


def _common(epochs: int, iterations: int, draws: int) -> dict[str, Any]:
    return {"epochs": [epochs], "augmented": [False], "iterations": [iterations], "draws": [draws]}


def _choice_of_fraction(data: str) -> tuple[Case, ...]:
    """The prior itself at every fraction for some trainings, then at the best of them for another training."""
    choice = CHOICES[data]

    def priors(fractions: tuple[float, ...], seeds: tuple[int, ...]) -> tuple[Case, ...]:
        named: dict[str, Any] = {"network": [choice.network], "posterior": ["prior"], "seed": seeds}
        if data == "fashion_mnist":
            return grid(fraction=fractions, **named, **_common(epochs=6, iterations=0, draws=0))
        named["images"] = [SOME_IMAGES]
        by_fraction = ((one, _common(prior_epochs(one, 12), iterations=0, draws=0)) for one in fractions)
        return tuple(case for one, common in by_fraction for case in grid(fraction=[one], **named, **common))

    reported = () if choice.chosen is None else (choice.chosen,)
    return (*priors(choice.fractions, choice.seeds), *priors(reported, (REPORTED_SEED,)))


def _compared_with_the_literature() -> tuple[Case, ...]:
    common = {"posterior": "prior", "iterations": 0, "draws": 0, "seed": 0}
    return (
        dict(network="fc-600^3", fraction=0.5, epochs=12, augmented=False, **common),
        dict(network="cnn-32-64-128", fraction=0.5, epochs=8, augmented=True, **common),
        dict(network="fc-600^3", fraction=0.5, epochs=24, augmented=True, **common),
    )
