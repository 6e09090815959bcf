"""The paper's own networks, as large as hours allow: every layer's two factors, the paper's number beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Mark, Reading, Series, View
from hessmap_research.studies.layers.layer_cases import (
    NUM_CLASSES,
    NUM_ON_ALL_IMAGES,
    NUM_OUTLIERS,
    ON_ALL_IMAGES,
    OWN_RECIPE,
    PUBLISHED,
    by_network,
    kind_of,
    recipe_of,
    special_training,
    training_id,
)
from hessmap_research.studies.layers.trained_layers import recipe_for

# Seconds of one core for the training, the longer part.
_SECONDS = {
    "mnist": {"F-600^2": 500.0, "F-600^4": 1200.0, "F-600^8": 1800.0},
    "cifar10": {
        **{"VGG11-W32": 2000.0, "ResNet18-W48": 4000.0},
        **{"LeNet5": 1500.0, "LeNet5-(fc1-80)": 1500.0, "F-600^2": 400.0, "F-1500^3": 1500.0},
        **{"LeNet5-(fc1-100)": 1500.0, "LeNet5-(fc1-150)": 1500.0},
    },
}
_LARGE = {"mnist": ("F-600^2", "F-600^4", "F-600^8"), "cifar10": ("VGG11-W32", "ResNet18-W48")}
_KINDS = ("fc", "conv")
_MOST_WEIGHTS = 500_000  # of a linear layer whose Hessian is compared with its factors


def cases(data: str) -> tuple[Case, ...]:
    """One training of each; of LeNet5 those that the other studies compare."""
    some = grid(network=_LARGE[data], size=["large"], seed=[0])
    if data == "mnist":
        return some
    lenet = ({**ON_ALL_IMAGES[data], "seed": seed} for seed in range(NUM_ON_ALL_IMAGES))
    own = {**ON_ALL_IMAGES[data], **OWN_RECIPE, "seed": 0}
    variants = ({**ON_ALL_IMAGES[data], "network": f"LeNet5-(fc1-{width})", "seed": 0} for width in (80, 100, 150))
    return (*lenet, own, *variants, *grid(network=["F-600^2", "F-1500^3"], size=["long"], seed=[0]), *some)


def measure(case: Case) -> dict[str, Any]:
    from hessmap.layers import layer_names
    from hessmap_research.studies.layers.trained_layers import trained_layers

    recipe = recipe_of(case) if "epochs" in case else recipe_for(case["network"], case["data"], case["size"])
    problem, run = trained_layers(case["network"], case["data"], seed=case["seed"], recipe=recipe)
    layers = {name: _layer(problem, name) for name in layer_names(problem)}
    first = next(iter(layers))
    record: dict[str, Any] = {
        "num_train": recipe.num_train,
        "num_samples": problem.num_samples,
        **({} if "epochs" in case else {"epochs": int(run.moments[-1])}),
        "accuracy": run.final_accuracy,
        "loss": float(run.loss[-1]),
        "layer": layers,
    }
    for kind in _KINDS:
        later = [numbers for name, numbers in layers.items() if kind_of(name) == kind and name != first]
        if later:
            record[kind] = {"number": len(later), **_summary(later)} | _published_means(case, kind)
    return record


def _layer(problem: Any, name: str) -> dict[str, Any]:
    """Both factors of a layer, and of linear layers that are not too large how they fit the layer's Hessian."""
    from hessmap.layers import find_layer, layer_factors, product_of_factors
    from hessmap.layers.comparison import autocorrelation, class_outliers

    factors = layer_factors(problem, name)
    inputs = autocorrelation(factors.input_factor, factors.mean_patches)
    outputs = product_of_factors(factors).output_eigenpairs[0].numpy()
    found: dict[str, Any] = {
        "squared_cosine": inputs.squared_cosine,
        "ratio": inputs.eigenvalue_ratio,
        "input_eigenvalues": inputs.eigenvalues[:20] / inputs.eigenvalues[0],
        "output_eigenvalues": outputs[:20][outputs[:20] > 1e-12 * outputs[0]] / outputs[0],
    }
    if len(outputs) >= NUM_CLASSES:
        found["gap"] = class_outliers(outputs, NUM_CLASSES).ratio
    layer = find_layer(problem, name)
    return found | (_fit(problem, name) if kind_of(name) == "fc" and layer.size <= _MOST_WEIGHTS else {})


def _fit(problem: Any, name: str) -> dict[str, float]:
    from hessmap.layers import layer_hessian
    from hessmap.measurement.overlap import overlap_curve
    from hessmap_research.instruments.matricisation import rank_one_ratios
    from hessmap_research.studies.layers.measured_layer import stored_eigenpairs

    hessian = layer_hessian(problem, name)
    found = stored_eigenpairs(hessian, min(20, hessian.size))
    product = hessian.kronecker_approximation()
    assert found.eigenvectors is not None
    leading = product.eigenvectors(product.leading(len(found.eigenvalues)))
    return {
        "overlap_at_9": overlap_curve(found.eigenvectors, leading).at(NUM_OUTLIERS),
        "rank_one": float(rank_one_ratios(found.eigenvectors[:, :10], hessian.weight_shape).mean()),
        "top_ratio": float(found.eigenvalues[0]) / product.norm,
    }


def _summary(layers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean, least and largest of what the paper's tables list."""
    found: dict[str, Any] = {}
    for name in ("squared_cosine", "ratio"):
        values = [layer[name] for layer in layers]
        found[name] = {"mean": sum(values) / len(values), "least": min(values), "largest": max(values)}
    return found


def _published_means(case: Case, kind: str) -> dict[str, Any]:
    known = PUBLISHED.get((case["data"], case["network"], kind))
    return {} if known is None else {"published": {"squared_cosine": known.squared_cosine[0], "ratio": known.ratio[0]}}


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    for _, network, chosen in by_network(rows):
        data = chosen[0]["data"]
        where = f"{network} on {data}{special_training(chosen[0])}"
        for kind in _KINDS:
            known = PUBLISHED.get((data, network, kind))
            if known is None or kind not in chosen[0]:
                continue
            for name, words, published in (
                ("squared_cosine", "(v1 . E[x])^2", known.squared_cosine),
                ("ratio", "lambda_1 / lambda_2", known.ratio),
            ):
                claim = f"{where}, {kind}: the mean {words} lies within the paper's range"
                within = claim_id("published", name, training_id(chosen[0]), kind)
                yield _within(within, claim, chosen, f"{kind}.{name}", published)


def _within(within: str, claim: str, rows: Sequence[Row], name: str, published: tuple[float, float, float]) -> Claim:
    """One or two trainings, in another way than the paper's: outside of the range of its runs they decide nothing."""
    mean, least, largest = published
    means, lowest, highest = ([row.number(f"{name}.{part}") for row in rows] for part in ("mean", "least", "largest"))
    ours = sum(means) / len(means)
    trainings = "one training" if len(rows) == 1 else f"{len(rows)} trainings"
    detail = f"ours {ours:.4g} ({min(lowest):.4g} to {max(highest):.4g}), paper {mean} ({least} to {largest})"
    return Claim(within, claim, least <= round(ours, 3) <= largest or None, f"{trainings}: {detail}")


def _falling(data: str, network: str, layers: Sequence[str], **size: str) -> Lines:
    return Lines(
        title=f"{network} on {data}",
        where={"data": data, "network": network, **size},
        x="index",
        series=tuple(
            Series(layer, line=f"layer.{layer}.output_eigenvalues", dashed=f"layer.{layer}.input_eigenvalues")
            for layer in layers
        ),
        reading=Reading(line="E[M]", dashed="E[x x$^T$]"),
        x_label="position",
        y_label="eigenvalue / largest",
        y_scale="log",
        y_limits=(1e-4, 1.5),
        marks=(Mark(NUM_OUTLIERS + 0.5, "c - 1"),),
    )


def _columns(kind: str) -> tuple[Column, ...]:
    return (
        Column(f"{kind}.squared_cosine.mean", f"(v1.Ex)^2, {kind}", ".3f"),
        Column(f"{kind}.published.squared_cosine", "paper", ".3f"),
        Column(f"{kind}.ratio.mean", f"lambda_1/lambda_2, {kind}", ".2f"),
        Column(f"{kind}.published.ratio", "paper", ".2f"),
    )


STUDY = Study(
    name="layers/published-networks",
    question="Do the paper's own networks, trained until they fit their samples, have the factors it prints?",
    reference="Wu et al. 2022, Tables 6 and 7",
    cases=cases,
    measure=measure,
    data=tuple(_SECONDS),
    claims=claims,
    seconds=lambda case: _SECONDS[case["data"]][case["network"]],
    families={
        "published-squared-cosine": "The mean (v1 . E[x])^2 lies within the paper's range",
        "published-ratio": "The mean lambda_1 / lambda_2 lies within the paper's range",
    },
    view=View(
        figures=(
            _falling("mnist", "F-600^2", ("fc2", "fc3")),
            _falling("mnist", "F-600^4", ("fc2", "fc3", "fc4", "fc5")),
            _falling("mnist", "F-600^8", ("fc2", "fc4", "fc6", "fc8", "fc9")),
            _falling("cifar10", "F-600^2", ("fc2", "fc3")),
            _falling("cifar10", "LeNet5", ("conv2", "fc1", "fc2", "fc3"), size="long"),
            _falling("cifar10", "LeNet5-(fc1-80)", ("conv2", "fc1", "fc2", "fc3")),
            _falling("cifar10", "VGG11-W32", ("conv2", "conv5", "conv8", "fc1")),
            _falling("cifar10", "ResNet18-W48", ("fc1",)),
        ),
        table=(
            "data",
            "network",
            "seed",
            Column("num_train", "images"),
            "epochs",
            Column("accuracy", "accuracy", ".2%"),
            *(column for kind in _KINDS for column in _columns(kind)),
        ),
    ),
    answered=Answer(
        "It depends: mean inputs agree as far as it is decided, and so do the ratios of F-600^8, of F-600^2 on cifar10"
        " and of the convolutions of VGG11-W32, while the others are open; LeNet5 has the paper's mean input by the"
        " paper's recipe alone.",
        num_claims=24,
        inconclusive=(
            "published-ratio-f-600-2-mnist-large-fc",
            "published-ratio-f-600-4-mnist-large-fc",
            "published-squared-cosine-lenet5-cifar10-long-fc",
            "published-ratio-lenet5-cifar10-long-fc",
            "published-ratio-lenet5-cifar10-long-conv",
            "published-ratio-lenet5-cifar10-published-fc",
            "published-ratio-lenet5-cifar10-published-conv",
            "published-squared-cosine-lenet5-fc1-80-cifar10-long-fc",
            "published-ratio-lenet5-fc1-80-cifar10-long-fc",
            "published-squared-cosine-lenet5-fc1-80-cifar10-long-conv",
            "published-ratio-lenet5-fc1-80-cifar10-long-conv",
            "published-squared-cosine-f-600-2-cifar10-long-fc",
            "published-squared-cosine-vgg11-w32-cifar10-large-fc",
            "published-ratio-vgg11-w32-cifar10-large-fc",
        ),
    ),
)
