"""Which networks, samples and posteriors the study of priors from data takes, and why each."""

from __future__ import annotations

from typing import Any, NamedTuple

from hessmap.studies import Case, grid

FRACTIONS = (0.0, 0.1, 0.25, 0.5, 0.7, 0.9)
# "prior": no posterior but the prior itself, without divergence.
POSTERIORS = ("prior", "standard", "approximate", "iterative", "iterative_activity")
REPORTED_SEED = 0


class Choice(NamedTuple):
    """How the fraction of a data set is chosen: a network, fractions, and the trainings that choose, none reported."""

    network: str
    fractions: tuple[float, ...]
    seeds: tuple[int, ...]
    chosen: float | None  # the fraction with the lowest mean bound over these trainings, once they were run


CHOICES = {
    "fashion_mnist": Choice("fc-100", (0.25, 0.5, 0.7, 0.9), (1,), 0.7),
    "cifar10": Choice("cnn-16-32", (0.25, 0.5, 0.7), (1,), None),
}


def cases(data: str) -> tuple[Case, ...]:
    """Small networks at every fraction and in every basis; on MNIST also the large ones, whose numbers are compared."""
    if data == "digits":
        common = _common(epochs=60, iterations=600, draws=50_000) | {"seed": range(2)}
        return grid(network=["fc-100", "cnn-16-32"], fraction=FRACTIONS, posterior=POSTERIORS, **common)
    common = _common(epochs=6, iterations=1000, draws=50_000) | {"seed": [1]}
    if data == "mnist":
        plain = grid(network=["fc-100"], fraction=FRACTIONS, posterior=POSTERIORS, **common)
        images = grid(network=["cnn-16-32"], fraction=FRACTIONS, posterior=("prior", "standard", "iterative"), **common)
        return (*_compared_with_the_literature(), *plain, *images)
    return (*_choice_of_fraction(CHOICES[data]), *_fitted(CHOICES[data], common))


def _fitted(choice: Choice, common: dict[str, Any]) -> tuple[Case, ...]:
    """Posteriors with a divergence, from priors of a tenth and of a half of the samples."""
    bases = ("standard", "approximate", "iterative")
    return grid(network=[choice.network], fraction=[0.1, 0.5], posterior=bases, **common)


def _common(epochs: int, iterations: int, draws: int) -> dict[str, Any]:
    return {"epochs": [epochs], "augmented": [False], "iterations": [iterations], "draws": [draws]}


def _choice_of_fraction(choice: Choice) -> tuple[Case, ...]:
    """The prior itself at every fraction for some trainings, then at the best of them for another training."""
    common = _common(epochs=6, iterations=0, draws=0) | {"network": [choice.network], "posterior": ["prior"]}
    tried = grid(fraction=choice.fractions, seed=choice.seeds, **common)
    reported = [] if choice.chosen is None else [choice.chosen]
    return (*tried, *grid(fraction=reported, seed=[REPORTED_SEED], **common))


def _compared_with_the_literature() -> tuple[Case, ...]:
    common = {"posterior": "prior", "iterations": 0, "draws": 0, "seed": 0}
    return (
        dict(network="fc-600^3", fraction=0.5, epochs=12, augmented=False, **common),
        dict(network="cnn-32-64-128", fraction=0.5, epochs=8, augmented=True, **common),
        dict(network="fc-600^3", fraction=0.5, epochs=24, augmented=True, **common),
    )
