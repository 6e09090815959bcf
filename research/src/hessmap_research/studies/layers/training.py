"""One layer along training: its factors, its Hessian beside their product, and where its top space comes to rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Lines, Series, View
from hessmap_research.studies.layers.layer_cases import (
    NUM_MEASURED,
    NUM_ON_ALL_IMAGES,
    NUM_OUTLIERS,
    cases_by_own_recipe,
    cases_on_all_images,
    recipe_of,
    trained_on,
    training_id,
)

if TYPE_CHECKING:
    from hessmap.problem.problem import Problem
    from hessmap_research.studies.layers.trained_layers import Recipe

_NUM_MODELS = 3
_MOMENTS = (0, 1, 3, 10, 30, 100, 300)
_LAYERS = {
    "digits": (("F-100^2", "fc1"), ("F-100^2", "fc2"), ("F-100^2", "fc3")),
    "mnist": (("F-200^2", "fc1"), ("F-200^2", "fc2")),
    "cifar10": (("LeNet5", "conv2"), ("LeNet5", "fc1")),
}
_SHOWN = (1, 5, 9, 10, 20)
_ALL_IMAGES = 50_000  # here only the factors are measured, not the Hessian: about 70 CPU-seconds per checkpoint
_OVER_EPOCHS = (
    ("gap", "$\\tau_9 / \\tau_{10}$ of E[M]"),
    ("with_final", "overlap with the last top space (1 at the end)"),
    ("kronecker_overlap", "overlap of H and its factors"),
    ("with_other", "overlap of two trainings"),
)
_ENDS = {"first": 0, "before_last": -2, "last": -1}


def cases(data: str) -> tuple[Case, ...]:
    """Some layers of three models; on images also fc1, the paper's layer, of two that were trained on all, its
    factors on all as in the paper, and its factors alone of one by the paper's own recipe."""
    small = tuple(
        {"network": network, "layer": layer, "seed": seed}
        for network, layer in _LAYERS[data]
        for seed in range(_NUM_MODELS)
    )
    long = cases_on_all_images(data, layers=["fc1"])
    own = cases_by_own_recipe(data, layers=["fc1"])
    return (*small, *long, *({**case, "num_measured": _ALL_IMAGES} for case in (*long, *own)))


def measure(case: Case) -> dict[str, Any]:
    """Arrays over the epochs of the checkpoints, from the initialisation to the end; spaces of c - 1 dimensions."""
    import numpy as np

    from hessmap_research.studies.layers.layer_cases import layers_of
    from hessmap_research.studies.plotted_curves import four_digits

    epochs = _epochs(case)
    own = [_layer_at(case, epoch) for epoch in epochs]
    numbers = {name: [seen[name] for seen in own] for name in own[0] if name != "space"}
    chance = {}
    if "space" in own[0]:
        spaces = [seen["space"] for seen in own]
        numbers |= _overlaps(case, epochs, spaces)
        chance = {"chance": float(NUM_OUTLIERS / len(spaces[0]))}
    if case["layer"] == layers_of(case["network"])[-1]:
        del numbers["gap"]  # E[M] has rank c - 1 there
    return {
        "moments": np.array(epochs),
        "course": {name: four_digits(np.array(values)) for name, values in numbers.items()},
        **{when: {name: float(numbers[name][place]) for name in numbers} for when, place in _ENDS.items()},
        **chance,
    }


def _overlaps(case: Case, epochs: Sequence[int], spaces: Sequence[Any]) -> dict[str, list[Any]]:
    """With the end of the same training, and with another training after as many epochs."""
    from hessmap.measurement.overlap import overlap_curve

    neighbour = {**case, "seed": (case["seed"] + 1) % (NUM_ON_ALL_IMAGES if "size" in case else _NUM_MODELS)}
    others = [_layer_at(neighbour, epoch)["space"] for epoch in epochs]
    return {
        "with_final": [overlap_curve(space, spaces[-1]).values[-1] for space in spaces],
        "with_other": [overlap_curve(*pair).values[-1] for pair in zip(spaces, others, strict=True)],
    }


def _epochs(case: Case) -> tuple[int, ...]:
    last = _recipe(case).epochs
    return (*(epoch for epoch in _MOMENTS if epoch < last), last)


def _recipe(case: Case) -> Recipe:
    from hessmap_research.studies.layers.trained_layers import recipe_for

    return recipe_of(case) if "size" in case else recipe_for(case["network"], case["data"])


def _problem(case: Case, epochs: int) -> Problem:
    from hessmap_research.studies.layers.trained_layers import trained_layers, untrained_layers

    recipe = _recipe(case)
    if epochs == 0:
        return untrained_layers(case["network"], case["data"], seed=case["seed"], recipe=recipe)
    made = trained_layers(case["network"], case["data"], seed=case["seed"], recipe=replace(recipe, epochs=epochs))
    return made.problem


def _layer_at(case: Case, epochs: int) -> dict[str, Any]:
    """Numbers of a layer at a checkpoint, and the top c - 1 eigenvectors of its Hessian unless it is on all images."""
    from hessmap.layers import layer_factors, layer_hessian
    from hessmap.measurement.overlap import overlap_curve
    from hessmap_research.studies.layers.measured_layer import factors_in_numbers, stored_eigenpairs

    problem = _problem(case, epochs)
    if _is_on_all(case):
        return factors_in_numbers(layer_factors(problem, case["layer"]), _SHOWN)
    hessian = layer_hessian(problem, case["layer"])
    found = stored_eigenpairs(hessian, NUM_OUTLIERS)
    assert found.eigenvectors is not None
    product = hessian.kronecker_approximation()
    guessed = product.eigenvectors(product.leading(NUM_OUTLIERS))
    return {
        "risk": problem.risk(),
        "trace": hessian.trace,
        "largest": float(found.eigenvalues[0]),
        "share": float(found.eigenvalues.sum() / hessian.trace),
        "kronecker_overlap": float(overlap_curve(found.eigenvectors, guessed).values[-1]),
        **factors_in_numbers(hessian.factors["uncorrelated_patches"], _SHOWN),
        "space": found.eigenvectors,
    }


def _is_on_all(row: Case | Row) -> bool:
    return row.get("num_measured") == _ALL_IMAGES


def _where(row: Row) -> str:
    measured = ", factors on all of them" if _is_on_all(row) else ""
    return f"{row['layer']} of {row['network']} on {trained_on(row)}{measured}"


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Appendix F.4 at every checkpoint, layer by layer over the seeds."""
    for where in dict.fromkeys(map(_where, rows)):
        chosen = [row for row in rows if _where(row) == where]
        layer = (training_id(chosen[0]), chosen[0]["layer"], "all" if _is_on_all(chosen[0]) else None)
        smallest = min(row.array("course.squared_cosine").min() for row in chosen)
        claim = f"{where}: the first eigenvector of E[x x^T] is along E[x] all along, (v1 . E[x])^2 above 0.99"
        yield Claim(claim_id("rank-one-inputs", *layer), claim, bool(smallest > 0.99), f"smallest {smallest:.4f}")
        if all("course.gap" in row for row in chosen):
            counts = [int(count) for row in chosen for count in row.array("course.num_outliers")]
            claim = f"{where}: the eigenvalues of E[M] fall most after the first c - 1 all along"
            right = sum(count == NUM_OUTLIERS for count in counts)
            yield Claim.counted(
                claim_id("outliers", *layer), claim, right, len(counts), f"at {right} of {len(counts)} checkpoints"
            )
        if "chance" not in chosen[0]:
            continue
        nearer = [(row["first.with_final"], row["before_last.with_final"]) for row in chosen]
        claim = f"{where}: the last checkpoint before the end has more of the last top space than the first"
        detail = ", ".join(f"{first:.3f} to {later:.3f}" for first, later in nearer)
        yield Claim(claim_id("nearer-the-end", *layer), claim, all(later > first for first, later in nearer), detail)
        least = min(row.array("course.with_other").min() / row.number("chance") for row in chosen)
        claim = f"{where}: two trainings overlap ten times more than random spaces all along"
        yield Claim(claim_id("above-chance", *layer), claim, bool(least > 10), f"smallest ratio {least:.1f}")


def _measured(label: str, name: str) -> Series:
    """Circles that a line joins."""
    return Series(label, line=name, points=name)


def _figures(data: str, size: str | None = None) -> tuple[Lines, ...]:
    """The layer that the paper has, or one like it; of networks on all images its factors on all of them."""
    network, hidden = [name for name in _LAYERS[data] if name[1] != "fc3"][-1]
    which, all_images = {"data": data, "size": size}, {"num_measured": _ALL_IMAGES} if size else {}
    more = {None: "", "long": ", all images", "published": ", the paper's recipe"}[size]
    spectra = (
        Lines(
            title=f"{hidden} of {network}, {data}{more}: {words}",
            where={**which, **all_images, "layer": hidden},
            x="moments",
            series=tuple(_measured(f"$\\{name}_{{{at}}}$", f"course.{name}_{at}") for at in places),
            x_scale="symlog",
            y_scale="log",
            x_label="epoch",
            y_label="eigenvalue",
        )
        for name, words, places in (("gamma", "E[x x$^T$]", (1, 2, 3)), ("tau", "E[M]", _SHOWN))
    )
    over_epochs = (
        Lines(
            title=f"{network}, {data}{more}: {words}",
            where={**which, **(all_images if name == "gap" else {"num_measured": NUM_MEASURED} if size else {})},
            split="layer",
            x="moments",
            series=(_measured("{layer}", f"course.{name}"),),
            x_scale="symlog",
            y_limits=(0.0, None),
            x_label="epoch",
            y_label="overlap, k = 9" if "overlap" in words else "ratio",
        )
        for name, words in _OVER_EPOCHS
    )
    return (*spectra, *over_epochs)


# Of CIFAR-10 the networks on all images, the overlap of the small ones, and the factors of the paper's recipe.
_SHOWN_OF_CIFAR10 = (
    _figures("cifar10")[-1],
    *_figures("cifar10", "long"),
    *_figures("cifar10", "published")[:2],
)

STUDY = Study(
    name="layers/training",
    question="Are the structures of a layer there from the start of training, and when does its top space settle?",
    reference="Wu et al. 2022, appendix F.4, Figures 19 and 20",
    cases=cases,
    measure=measure,
    data=tuple(_LAYERS),
    claims=claims,
    seconds=lambda case: {"digits": 10.0, "mnist": 120.0, "cifar10": 1500.0 if "size" in case else 150.0}[case["data"]],
    families={
        "rank-one-inputs": "The first eigenvector of E[x x^T] is along E[x] all along, (v1 . E[x])^2 above 0.99",
        "outliers": "The eigenvalues of E[M] fall most after the first c - 1 all along",
        "nearer-the-end": "The last checkpoint before the end has more of the last top space than the first",
        "above-chance": "Two trainings overlap ten times more than random spaces all along",
    },
    view=View(
        figures=(*_figures("digits"), *_figures("mnist"), *_SHOWN_OF_CIFAR10),
        table=(
            "data",
            "network",
            "size",
            "num_measured",
            "layer",
            *(
                Column(f"{when}.{name}", f"{label}, {when}", spec)
                for name, label, spec in (
                    ("squared_cosine", "(v1.Ex)^2", ".4f"),
                    ("eigenvalue_ratio", "lambda1/lambda2", ".2f"),
                    ("gap", "tau9/tau10", ".2f"),
                    ("kronecker_overlap", "H and factors", ".2f"),
                    ("with_other", "two trainings", ".3f"),
                )
                for when in ("first", "last")
            ),
            Column("first.with_final", "first and last", ".3f"),
        ),
        group_by=("data", "network", "size", "num_measured", "layer"),
    ),
    answered=Answer(
        "It depends: in fully connected networks the factors have their shape throughout except at a few checkpoints of"
        " fc1, and the top space settles; in LeNet5 on CIFAR-10 E[M] does not keep its gap.",
        num_claims=35,
        fails=(
            "outliers-f-100-2-digits-fc1",
            "above-chance-f-100-2-digits-fc2",
            "outliers-f-200-2-mnist-fc1",
            "rank-one-inputs-lenet5-cifar10-conv2",
            "outliers-lenet5-cifar10-conv2",
            "rank-one-inputs-lenet5-cifar10-fc1",
            "outliers-lenet5-cifar10-fc1",
            "above-chance-lenet5-cifar10-fc1",
            "outliers-lenet5-cifar10-long-fc1",
            "outliers-lenet5-cifar10-long-fc1-all",
            "outliers-lenet5-cifar10-published-fc1-all",
        ),
    ),
)
