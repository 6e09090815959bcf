"""A network along its training: the weights at some moments, from the initialisation to a stationary point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hessmap.datasets import Data
    from hessmap.studies.trained_network import Architecture
    from hessmap.training.history import Evaluation

TOLERANCE = 1e-15  # of the gradient norm; what float64 cannot reach ends at its rounding
_RECIPE_VERSION = 1
_SGD: dict[str, Any] = {"epochs": 300, "batch_size": 10, "learning_rate": 0.02}
_MAX_EVALUATIONS = 100_000  # ReLU networks at the paper's sizes need more than 20,000
_NUM_MOMENTS = 16


class TrainingCourse(NamedTuple):
    """``moments`` counts epochs of SGD and, from there on, evaluations of the second method."""

    moments: tuple[int, ...]
    models: tuple[nn.Module, ...]
    ending: str


class Snapshot(NamedTuple):
    """``size`` is the loss or the gradient norm at the moment."""

    moment: int
    size: float
    weights: dict[str, Tensor]


def training_course(
    network: Architecture, data: Data, seed: int, along: Literal["loss", "gradient_norm"] = "loss"
) -> TrainingCourse:
    """Train with squared loss from a Glorot initialisation: SGD with momentum, then L-BFGS and Newton's method.

    SGD alone takes very long to where the residual vanishes, and the second method alone leaves many units dead.
    The moments are spread evenly over the logarithm of the loss, or of the gradient norm where a loss stays. The
    course is trained once and kept with the trained models.
    """
    from hessmap.runs.model_cache import trained

    settings = {
        **_settings("course", network, data, seed),
        "along": along,
        **_SGD,
    }
    kept = trained(settings, lambda _: _trained(network, data, seed, along))
    models = tuple(_with_weights(network, weights) for weights in kept["weights"])
    return TrainingCourse(tuple(kept["moments"]), models, kept["ending"])


def stationary_network(network: Architecture, data: Data, seed: int) -> nn.Module:
    """The network trained with squared loss from a Glorot initialisation to a stationary point, and kept."""
    from hessmap.runs.model_cache import trained
    from hessmap.training import train_to_stationary_point

    def fit(_: object) -> dict[str, Tensor]:
        model = network.build(seed=seed, init="glorot")
        train_to_stationary_point(model, data, "squared", tolerance=TOLERANCE, num_threads=1)
        return _weights(model)

    return _with_weights(network, trained(_settings("stationary point", network, data, seed), fit))


def _settings(recipe: str, network: Architecture, data: Data, seed: int) -> dict[str, Any]:
    from hessmap.results import data_hash

    return {
        "recipe": recipe,
        "recipe_version": _RECIPE_VERSION,
        "network": repr(network),
        "data": data_hash(data.inputs.numpy(), data.targets.numpy()),
        "seed": seed,
        "tolerance": TOLERANCE,
    }


def _trained(network: Architecture, data: Data, seed: int, along: str) -> dict[str, Any]:
    from hessmap.training import train, train_to_stationary_point

    model = network.build(seed=seed, init="glorot")
    start = _weights(model)
    taken: list[Snapshot] = []

    def take(done: int, at: Evaluation) -> None:
        taken.append(Snapshot(done, getattr(at, along), _weights(model)))

    epochs = _SGD["epochs"]
    run = train(model, data, "squared", seed=seed, **_SGD, progress=lambda at: take(at.done, at.evaluation))
    taken.insert(0, Snapshot(0, float(getattr(run, along)[0]), start))
    ending = train_to_stationary_point(
        model,
        data,
        "squared",
        tolerance=TOLERANCE,
        max_evaluations=_MAX_EVALUATIONS,
        record_every=5,
        progress=lambda at: take(epochs + at.done, at.evaluation),
    ).ending
    chosen = _evenly(taken)
    return {"moments": [at.moment for at in chosen], "weights": [at.weights for at in chosen], "ending": ending}


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _with_weights(network: Architecture, weights: dict[str, Tensor]) -> nn.Module:
    model = network.build()
    model.load_state_dict(weights)
    return model


def _evenly(taken: list[Snapshot]) -> list[Snapshot]:
    """The first snapshots at or below each of some sizes, even in their logarithm, and the last one."""
    smallest = min(at.size for at in taken)
    levels = np.geomspace(taken[0].size, smallest, _NUM_MOMENTS) if smallest > 0 else [taken[0].size, 0.0]
    places = {next(place for place, at in enumerate(taken) if at.size <= level * (1 + 1e-9)) for level in levels}
    return [taken[place] for place in sorted({*places, len(taken) - 1})]
