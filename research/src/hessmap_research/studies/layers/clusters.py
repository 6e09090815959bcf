"""Mean gradients of logits, one for each class and logit: clusters by logit at the start, by class at the end?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Cloud, Column, View

if TYPE_CHECKING:
    from hessmap.layers import LogitGradients
    from hessmap.problem.problem import Problem

_NETWORK = "F-200^2"
_MOMENTS = ("initialisation", "minimum")
_SYMBOLS = {"outputs": "Gamma", "weights": "Delta"}


def cases(data: str) -> tuple[Case, ...]:
    """The first layer of the paper and the next; its gradients in outputs (Gamma) and in weights (Delta)."""
    return grid(network=[_NETWORK], layer=["fc1", "fc2"], moment=_MOMENTS, space=tuple(_SYMBOLS), seed=range(3))


def measure(case: Case) -> dict[str, Any]:
    """Variances between clusters over those within them, and where t-SNE puts the points of every class and logit."""
    from hessmap.layers import logit_gradients
    from hessmap_research.instruments.matricisation import cluster_ratios, embedded
    from hessmap_research.studies.layers.trained_layers import trained_layers, untrained_layers
    from hessmap_research.studies.plotted_curves import four_digits

    network, data, seed = case["network"], case["data"], case["seed"]
    if case["moment"] == "initialisation":
        problem = untrained_layers(network, data, seed=seed)
    else:
        problem = trained_layers(network, data, seed=seed).problem
    gradients = logit_gradients(problem, case["layer"], case["space"])
    found = cluster_ratios(gradients.means, gradients.total)
    places = embedded(gradients.means)
    classes, logits = (index.ravel() for index in np.indices((found.num_classes,) * 2))
    return {
        "by_logit": found.by_logit,
        "by_class": found.by_class,
        "of_each_logit": four_digits(found.of_each_logit),
        "of_each_class": four_digits(found.of_each_class),
        "explained": found.explained,
        "centre_cosine": _centre_cosines(problem, case["layer"], gradients),
        "horizontal": four_digits(places[:, 0]),
        "vertical": four_digits(places[:, 1]),
        "logit": logits,
        "class": classes,
    }


def _centre_cosines(problem: Problem, layer: str, gradients: LogitGradients) -> dict[str, float]:
    """Mean squared cosine of the centres of logit gradients with (S^T E[Q]^T)_j, in weights times E[x].

    "weights" takes S as the product of the weights behind the layer, "activities" S_q.

    Reference: Wu et al. 2022, equation 273, corrected: Q is transposed and the Kronecker order reversed.
    """
    import torch

    from hessmap.layers import downstream_weights, layer_factors
    from hessmap.theory.layers import activity_weighted_product, weight_product

    tail = downstream_weights(problem, layer)
    factors = layer_factors(problem, layer)
    weights, slopes = ([part.numpy() for part in parts] for parts in (tail.weights, tail.derivatives))
    num_outputs = len(factors.output_factor)
    roots = problem.loss.hessian_factor(problem.outputs(), problem.targets).mT
    mean_root = torch.einsum("n,nab->ab", problem.weights / problem.weights.sum(), roots).numpy()
    centres = gradients.means.numpy().mean(axis=0)
    found = {}
    for name, product in (
        ("weights", weight_product(weights, num_outputs)),
        ("activities", activity_weighted_product(weights, slopes, num_outputs)),
    ):
        guessed = mean_root @ product
        if gradients.space == "weights":
            guessed = np.einsum("jm,a->jma", guessed, factors.mean_input.numpy()).reshape(len(guessed), -1)
        inner = (guessed * centres).sum(axis=1)
        sizes = np.square(guessed).sum(axis=1) * np.square(centres).sum(axis=1)
        found[name] = float(np.mean(inner**2 / sizes))
    return found


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Logit clusters at the start; at the end weak class clusters, though c - 1 eigenvalues stay large."""
    for data, layer in dict.fromkeys((row["data"], row["layer"]) for row in rows):
        for space, symbol in _SYMBOLS.items():
            chosen = [row for row in rows if (row["data"], row["layer"], row["space"]) == (data, layer, space)]
            where = f"{data}, {layer}, {symbol}"
            start = [row for row in chosen if row["moment"] == "initialisation"]
            if start:
                claim = f"{where}, initialisation: clusters by logit, ratio above 1 and above that by class"
                clear = all(row["by_logit"] > max(1.0, row["by_class"]) for row in start)
                yield Claim(claim_id("logit-clusters", data, layer, space), claim, clear, _both(start))
            end = [row for row in chosen if row["moment"] == "minimum"]
            if end:
                claim = f"{where}, minimum: clusters by class are weak, ratio below 1"
                yield Claim(
                    claim_id("weak-class-clusters", data, layer, space),
                    claim,
                    all(row["by_class"] < 1 for row in end),
                    _both(end),
                )
    for moment in _MOMENTS:
        pairs = [row["centre_cosine"] for row in rows if row["moment"] == moment]
        if pairs:
            claim = f"Centres at the {moment}: S_q tells them better than S (equation 273), squared cosine above 0.9"
            holds = all(pair["activities"] > max(0.9, pair["weights"]) for pair in pairs)
            ranges = {name: [pair[name] for pair in pairs] for name in ("weights", "activities")}
            words = [f"from {name} {min(some):.3f} to {max(some):.3f}" for name, some in ranges.items()]
            yield Claim(claim_id("centres", moment), claim, holds, ", ".join(words))
    shares = [row.number("explained") for row in rows]
    claim = "Class means alone do not make the Hessian (equation 271): they hold less than 0.95 of its trace"
    yield Claim("class-means-not-enough", claim, max(shares) < 0.95, f"{min(shares):.2f} to {max(shares):.2f}")


def _both(rows: Sequence[Row]) -> str:
    return "by logit " + ", ".join(f"{row['by_logit']:.2f} (by class {row['by_class']:.2f})" for row in rows)


def _cloud(data: str, moment: str, space: str, colour: str) -> Cloud:
    return Cloud(
        title=f"{_SYMBOLS[space]}, fc1, {data}, {moment}: by {colour}",
        where={"data": data, "layer": "fc1", "moment": moment, "space": space, "seed": 0},
        x="horizontal",
        y="vertical",
        colour=colour,
        x_label="t-SNE, first coordinate",
        y_label="second coordinate",
    )


STUDY = Study(
    name="layers/clusters",
    question="Do the mean gradients of logits cluster by logit at initialisation and by class at a minimum?",
    reference="Wu et al. 2022, appendix G.5, Figures 29 and 30, equations 271 and 273",
    cases=cases,
    measure=measure,
    data=("digits", "mnist"),
    claims=claims,
    seconds=lambda case: {"digits": 1.5}.get(case["data"], 15.0),
    families={
        "logit-clusters": "At the initialisation there are clusters by logit, ratio above 1 and above that by class",
        "weak-class-clusters": "At the minimum clusters by class are weak, ratio below 1",
    },
    view=View(
        figures=tuple(
            _cloud(data, moment, space, colour)
            for data in ("digits", "mnist")
            for space in _SYMBOLS
            for moment, colour in (("initialisation", "logit"), ("minimum", "logit"), ("minimum", "class"))
        ),
        table=(
            "data",
            "layer",
            "moment",
            "space",
            Column("by_logit", "between/within logits", ".2f"),
            Column("by_class", "between/within classes", ".2f"),
            Column("centre_cosine.weights", "centres from S", ".3f"),
            Column("centre_cosine.activities", "from S_q", ".3f"),
            Column("explained", "trace in class means", ".2f"),
        ),
        group_by=("data", "layer", "moment", "space"),
    ),
    answered=Answer(
        "It depends: by logit at the initialisation they do; at the minimum clusters by class are weak, with a"
        " ratio below 1.",
        num_claims=19,
        fails=("centres-minimum",),
    ),
)
