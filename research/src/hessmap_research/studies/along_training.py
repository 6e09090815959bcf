"""A network along its training: the weights at some moments, what is measured there, and how it is judged and drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from hessmap.records import PARTS
from hessmap_research.runner.claims import Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.view import Lines, Series
from hessmap_research.studies.hessian_ranks import SYMBOLS, hessian_spectra
from hessmap_research.studies.plotted_curves import four_digits

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hessmap.datasets import Data
    from hessmap.problem.problem import Problem
    from hessmap.training.objective import Evaluation
    from hessmap_research.studies.trained_networks import Architecture

TOLERANCE = 1e-15  # of the gradient norm; what float64 cannot reach ends at its rounding
_RECIPE_VERSION = 1
_SGD: dict[str, Any] = {"epochs": 300, "batch_size": 10, "learning_rate": 0.02}
_MAX_EVALUATIONS = 100_000  # ReLU networks at the paper's sizes need more than 20,000
_NUM_MOMENTS = 16


class Checkpoints(NamedTuple):
    """Models along a training; ``moments`` counts epochs of SGD and then evaluations of the second method."""

    moments: tuple[int, ...]
    models: tuple[nn.Module, ...]
    ending: str


class Snapshot(NamedTuple):
    """``size`` is the loss or the gradient norm at the moment."""

    moment: int
    size: float
    weights: dict[str, Tensor]


def checkpoints(
    network: Architecture, data: Data, seed: int, along: Literal["loss", "gradient_norm"] = "loss"
) -> Checkpoints:
    """Train with squared loss from a Glorot initialisation: SGD with momentum, then L-BFGS and Newton's method.

    SGD alone takes very long to where the residual vanishes, and the second method alone leaves many units dead.
    The moments are spread evenly over the logarithm of the loss, or of the gradient norm where a loss stays. Trained
    once, and stored with the trained models.
    """
    from hessmap_research.runner.model_cache import cached_model

    settings = {**_settings("course", network, data, seed), "along": along, **_SGD}
    stored = cached_model(settings, lambda _: _train(network, data, seed, along))
    models = tuple(_with_weights(network, weights) for weights in stored["weights"])
    return Checkpoints(tuple(stored["moments"]), models, stored["ending"])


def stationary_network(network: Architecture, data: Data, seed: int) -> nn.Module:
    """The network trained with squared loss from a Glorot initialisation to a stationary point, and stored."""
    from hessmap_research.instruments.stationary import train_to_stationary_point
    from hessmap_research.runner.model_cache import cached_model

    def fit(_: object) -> dict[str, Tensor]:
        model = network.build(seed=seed, init="glorot")
        train_to_stationary_point(model, data, "squared", tolerance=TOLERANCE, num_threads=1)
        return _weights(model)

    return _with_weights(network, cached_model(_settings("stationary point", network, data, seed), fit))


def _settings(recipe: str, network: Architecture, data: Data, seed: int) -> dict[str, Any]:
    from hessmap.records import data_hash

    return {
        "recipe": recipe,
        "recipe_version": _RECIPE_VERSION,
        "network": repr(network),
        "data": data_hash(data.inputs.numpy(), data.targets.numpy()),
        "seed": seed,
        "tolerance": TOLERANCE,
    }


def _train(network: Architecture, data: Data, seed: int, along: str) -> dict[str, Any]:
    from hessmap.training import train
    from hessmap_research.instruments.stationary import train_to_stationary_point

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
    chosen = _evenly_spread(taken)
    return {"moments": [at.moment for at in chosen], "weights": [at.weights for at in chosen], "ending": ending}


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _with_weights(network: Architecture, weights: dict[str, Tensor]) -> nn.Module:
    model = network.build()
    model.load_state_dict(weights)
    return model


def _evenly_spread(taken: list[Snapshot]) -> list[Snapshot]:
    """The first snapshots at or below each of some sizes, even in their logarithm, and the last one."""
    smallest = min(at.size for at in taken)
    levels = np.geomspace(taken[0].size, smallest, _NUM_MOMENTS) if smallest > 0 else [taken[0].size, 0.0]
    places = {next(place for place, at in enumerate(taken) if at.size <= level * (1 + 1e-9)) for level in levels}
    return [taken[place] for place in sorted({*places, len(taken) - 1})]


def ranks(along: Checkpoints, problems: Sequence[Problem]) -> dict[str, Any]:
    """Ranks of the weights and of the Hessians at each moment; those of the first and the last with their doubt.

    ``problems`` holds the models of the checkpoints with their data. ``functional_share`` is ||H_f|| / ||H_L||: the
    rank of H_f is relative to ||H_L||, as that of H_L.
    """
    measured = [_hessian_ranks(problem) for problem in problems]
    return {
        "num_parameters": problems[0].num_parameters,
        "moments": np.array(along.moments),
        "risk": four_digits(np.array([problem.risk() for problem in problems])),
        "gradient_norms": four_digits(np.array([float(problem.gradient().norm()) for problem in problems])),
        "functional_share": four_digits(np.array([at["functional_share"] for at in measured])),
        "ranks": {part: np.array([at["ranks"][part].value for at in measured]) for part in PARTS},
        "num_undecidable": sum(not rank.decidable for at in measured for rank in at["ranks"].values()),
        "weight_ranks": _weight_ranks(along.models),
        "initial": measured[0]["ranks"],
        "final": measured[-1]["ranks"],
        "final_risk": problems[-1].risk(),
        "gradient_norm": float(problems[-1].gradient().norm()),
        "ending": along.ending,
    }


def _hessian_ranks(problem: Problem) -> dict[str, Any]:
    from hessmap.measurement import numerical_rank

    spectra = hessian_spectra(problem)
    return {
        "ranks": {part: numerical_rank(spectra[part]) for part in PARTS},
        "functional_share": spectra["functional"].norm / spectra["loss"].norm,
    }


def _weight_ranks(models: Sequence[nn.Module]) -> dict[str, Any]:
    """The numerical rank of each weight, one filter or unit a row, relative to its own norm, at each moment."""
    from hessmap.measurement import numerical_rank

    by_layer = zip(*(model.parameters() for model in models), strict=True)
    return {
        f"layer_{number}": np.array([numerical_rank(weight.flatten(1)).value for weight in weights])
        for number, weights in enumerate(by_layer, start=1)
    }


def collapse_claims(name: str, where: Sequence[str], row: Row, full_ranks: Sequence[int]) -> Iterator[Claim]:
    """The weights keep their ranks ``full_ranks``, and H_f vanishes at the end, so that H_L has the rank of H_o.

    ``name`` is the training in the sentences of the claims, ``where`` the fields of the case in their ids.
    """
    weights = [row.array(f"weight_ranks.layer_{number}") for number in range(1, len(full_ranks) + 1)]
    lost = sum(int((ranks < rank).sum()) for ranks, rank in zip(weights, full_ranks, strict=True))
    detail = f"{lost} of {sum(ranks.size for ranks in weights)} measured ranks are below it"
    yield Claim(
        claim_id("full-rank-weights", *where),
        f"{name}: the weights keep their full rank along training",
        lost == 0,
        detail,
    )
    outer, functional = row.array("ranks.outer_product"), row.array("ranks.functional")
    detail = f"H_o {outer[0]:.0f} to {outer[-1]:.0f}, H_f {functional[0]:.0f} to {functional[-1]:.0f}"
    claim = f"{name}: at the end the rank of H_L is that of H_o, and that of H_f is 0"
    collapses = row.array("ranks.loss")[-1] == outer[-1] and functional[-1] == 0
    yield Claim(claim_id("collapse", *where), claim, bool(collapses), detail)


def vanishing_loss_claim(name: str, where: Sequence[str], row: Row) -> Claim:
    detail = f"{row['final_risk']:.1e}, with a gradient norm of {row['gradient_norm']:.1e}"
    return Claim(
        claim_id("loss-vanishes", *where), f"{name}: the loss falls to 1e-30", row["final_risk"] <= 1e-30, detail
    )


def start_claim(name: str, where: Sequence[str], row: Row, predicted: str, source: str = "the formulas") -> Claim:
    pairs = [(row.number(f"initial.{part}"), row.number(f"{predicted}.{part}")) for part in PARTS]
    detail = ", ".join(f"{measured:.0f} of {wanted:.0f}" for measured, wanted in pairs)
    holds = all(measured == wanted for measured, wanted in pairs)
    return Claim(
        claim_id("ranks-at-start", *where), f"{name}: at the start the ranks are those of {source}", holds, detail
    )


def figures(
    name: str, data: str, where: Mapping[str, Any], num_layers: int, rank_limits: tuple[float, float]
) -> tuple[Lines, ...]:
    """Ranks of the weights, ranks of the Hessians, and the sizes of loss and H_f, of one training.

    Over the gradient norm, which falls all along: the moments count epochs at first and evaluations later, and what
    lies between two of them was not measured.
    """
    common: dict[str, Any] = {
        "where": {**where, "data": data},
        "x": "gradient_norms",
        "x_label": "gradient norm, falling along the training",
        "x_scale": "log",
        "x_limits": (40.0, 4e-17),
    }
    layers = range(1, num_layers + 1)
    weights = tuple(Series(f"$W^{number}$", points=f"weight_ranks.layer_{number}") for number in layers)
    sizes = {"loss": "risk", r"$\|H_f\| / \|H_L\|$": "functional_share"}
    series = tuple(Series(label, points=field) for label, field in sizes.items())
    ranks = tuple(Series(SYMBOLS[part], points=f"ranks.{part}", part=part) for part in PARTS)
    title = f"{name}, {data}"
    return (
        Lines(title=f"{title}: weights", series=weights, y_label="rank", y_limits=rank_limits, **common),
        Lines(title=f"{title}: Hessians", series=ranks, y_label="rank", **common),
        Lines(title=f"{title}: sizes", series=series, y_scale="log", **common),
    )


def critical_point_checks(predicted: str) -> tuple[Check, ...]:
    """A gradient of zero, and the ranks that the field ``predicted`` says are left there."""
    return (
        Check("gradient_norm", 1e-10, "at_most"),
        *(Check(f"final.{part}", f"{predicted}.{part}") for part in PARTS),
        Check("final.loss", "final.outer_product"),
    )


def critical_points_figure(title: str, scenario: str, predicted: str, x: str, x_label: str) -> Lines:
    """Ranks at critical points, measured and predicted; H_L lies on H_o."""
    return Lines(
        title=title,
        where={"scenario": scenario},
        facet="data",
        x=x,
        series=tuple(
            Series(SYMBOLS[part], line=f"{predicted}.{part}", points=f"final.{part}", part=part) for part in PARTS
        ),
        x_label=x_label,
        y_label="rank",
    )
