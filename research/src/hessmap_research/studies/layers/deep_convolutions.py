"""Convolutions of deep networks: where the overlap of two models peaks, and what their top eigenvectors are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import INDEX, Column, Lines, Mark, Series, View

if TYPE_CHECKING:
    from hessmap.layers import LayerHessian
    from hessmap.problem.problem import Problem

_LAYERS = {
    "VGG11-W32": (*(f"conv{place}" for place in range(1, 9)), "fc1"),
    "VGG11-W16": ("conv1", "conv2", "conv3", "conv5", "conv8", "fc1"),
    "ResNet18-W12": ("conv1", "conv9", "conv17", "fc1"),
}
_FITTED = 0.95  # accuracy on its samples from which a model counts as trained to the end
_PAIRS = tuple(combinations(range(3), 2))
_SECONDS = {"VGG11-W32": 180.0, "VGG11-W16": 15.0, "ResNet18-W12": 20.0}
# The recipe, and how many of its images the Hessians are taken on where it is not as many as the recipe says.
_SIZES: dict[str, tuple[str, dict[str, int]]] = {"VGG11-W32": ("large", {"num_measured": 1000})}


def cases(data: str) -> tuple[Case, ...]:
    return tuple(case for name, layers in _LAYERS.items() for case in grid(network=[name], layer=layers, pair=_PAIRS))


def measure(case: Case) -> dict[str, Any]:
    """The overlap of two models for k up to twice the outputs m, and how far the top eigenvectors lie over v_1."""
    import numpy as np

    from hessmap.measurement.overlap import overlap_curve
    from hessmap.theory.layers import growth_end
    from hessmap_research.instruments.matricisation import input_correspondence
    from hessmap_research.studies.layers.measured_layer import stored_eigenpairs
    from hessmap_research.studies.plotted_curves import four_digits

    models = [_trained(case, number) for number in case["pair"]]
    hessians = [_hessian(problem, case["layer"]) for problem, _ in models]
    units = hessians[0].weight_shape[0]
    count = min(2 * units + 2, hessians[0].size)
    found = [stored_eigenpairs(hessian, count) for hessian in hessians]
    assert found[0].eigenvectors is not None
    assert found[1].eigenvectors is not None
    curve = overlap_curve(found[0].eigenvectors, found[1].eigenvectors)
    product = hessians[0].kronecker_approximation()
    over_inputs = input_correspondence(found[0].eigenvectors, product.input_eigenpairs[1])
    outputs, inputs = (values.numpy() for values, _ in (product.output_eigenpairs, product.input_eigenpairs))
    return {
        "num_outputs": int(units),
        "overlap": four_digits(curve.values),
        "chance": four_digits(curve.chance),
        "peak": int(np.argmax(curve.values)) + 1,
        "peak_value": float(curve.values.max()),
        "at_end": float(curve.values[-1]),
        "growth_end": growth_end(outputs, inputs),
        "over_mean": four_digits(over_inputs[0]),
        "first_over_mean": float(over_inputs[0][: min(9, count)].mean()),
        "kronecker_overlap": overlap_curve(
            found[0].eigenvectors, product.eigenvectors(product.leading(len(found[0].eigenvalues)))
        ).at(min(9, count)),
        "input_ratio": float(inputs[0] / inputs[1]),
        "accuracy": min(accuracy for _, accuracy in models),
        "converged": bool(found[0].converged and found[1].converged),
    }


def _trained(case: Case, seed: int) -> tuple[Problem, float]:
    from hessmap_research.studies.layers.trained_layers import recipe_for, trained_layers

    size, changes = _SIZES.get(case["network"], ("narrow", {}))
    recipe = recipe_for(case["network"], case["data"], size, **changes)
    problem, run = trained_layers(case["network"], case["data"], seed=seed, recipe=recipe)
    return problem, float(run.final_accuracy or 0.0)


def _hessian(problem: Problem, layer: str) -> LayerHessian:
    from hessmap.layers import layer_hessian

    return layer_hessian(problem, layer)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """What the paper says of minima; models that do not fit their samples decide nothing of it."""
    for network in _LAYERS:
        chosen = [row for row in rows if row["network"] == network]
        least = min((row.number("accuracy") for row in chosen), default=1.0)
        doubt = f"models are right on {least:.0%} of their samples only" if least < _FITTED else ""
        for found in _claims(chosen):
            yield replace(found, holds=None, detail=f"{found.detail}; {doubt}") if doubt else found


def _claims(rows: Sequence[Row]) -> Iterator[Claim]:
    for network, layers in _LAYERS.items():
        convolutions = [row for row in rows if row["network"] == network and row["layer"].startswith("conv")]
        if convolutions:
            at = [row for row in convolutions if abs(row["peak"] - row["num_outputs"]) <= 0.25 * row["num_outputs"]]
            claim = f"{network}: the overlap of most convolutions peaks within a quarter of their outputs m"
            yield Claim(
                claim_id("peaks-at-outputs", network),
                claim,
                len(at) > len(convolutions) / 2,
                f"{len(at)} of {len(convolutions)}; {_peaks(convolutions)}",
            )
            late = [row for row in convolutions if row["peak"] > 1.25 * row["num_outputs"]]
            claim = f"{network}: some convolutions peak later than that or do not decline (delayed peaks)"
            yield Claim(
                claim_id("delayed-peaks", network),
                claim,
                bool(late),
                ", ".join(dict.fromkeys(row["layer"] for row in late)) or "none",
            )
        for layer in layers:
            same = [row for row in rows if (row["network"], row["layer"]) == (network, layer)]
            if same and layer in ("conv1", "conv2", "conv3"):
                shares = [row.number("first_over_mean") for row in same]
                claim = f"{layer} of {network}: top nine eigenvectors lie over v_1 by more than half"
                yield Claim(
                    claim_id("stripe", network, layer),
                    claim,
                    min(shares) > 0.5,
                    f"{min(shares):.2f} to {max(shares):.2f}",
                )
        last = [row for row in rows if (row["network"], row["layer"]) == (network, "fc1")]
        if last:
            ends = [(float(row.array("overlap")[8]), row.number("at_end")) for row in last]
            claim = f"fc1 of {network}, the output layer: the overlap falls beyond c - 1"
            detail = ", ".join(f"{nine:.2f} to {end:.2f}" for nine, end in ends)
            yield Claim(claim_id("output-layer-falls", network), claim, all(end < nine for nine, end in ends), detail)


def _peaks(rows: Sequence[Row]) -> str:
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["layer"], []).append(str(row["peak"]))
    return f"m = {rows[0]['num_outputs']}, peaks " + "; ".join(f"{name} {', '.join(at)}" for name, at in found.items())


def _figure(network: str, layer: str) -> Lines:
    return Lines(
        title=f"{layer} of {network}",
        where={"network": network, "layer": layer},
        x=INDEX,
        series=(
            Series("measured overlap of two models", points="overlap"),
            Series("measured share of the k-th eigenvector over $v_1$", line="over_mean", points="over_mean"),
            Series("random spaces", dashed="chance"),
        ),
        x_label="dimension k, or place k of the eigenvector",
        y_label="overlap, or share over $v_1$",
        y_limits=(0.0, 1.02),
        marks=(Mark("num_outputs", "outputs m"), Mark("growth_end", "$k^*$")),
    )


STUDY = Study(
    name="layers/deep-convolutions",
    question="Do convolutions of deep networks overlap most at their output dimension, along the mean input?",
    reference="Wu et al. 2022, Figures 7, 8, 10, 16 to 18, 24 and 25, at 32, 16 and 12 channels",
    cases=cases,
    measure=measure,
    data=("cifar10",),
    claims=claims,
    seconds=lambda case: _SECONDS[case["network"]],
    families={
        "peaks-at-outputs": "The overlap of most convolutions peaks within a quarter of their outputs m",
        "delayed-peaks": "Some convolutions peak later than that or do not decline (delayed peaks)",
        "stripe": "Convolutions: top nine eigenvectors lie over v_1 by more than half",
        "output-layer-falls": "The overlap of the output layer falls beyond c - 1",
    },
    view=View(
        figures=(
            *(_figure("VGG11-W32", layer) for layer in ("conv1", "conv2", "conv3", "conv5", "conv8", "fc1")),
            *(_figure("ResNet18-W12", layer) for layer in ("conv1", "conv9", "conv17")),
        ),
        table=(
            "network",
            "layer",
            Column("num_outputs", "m"),
            Column("growth_end", "k*", ".0f"),
            Column("peak", "peak at", ".1f"),
            Column("peak_value", "overlap", ".3f"),
            Column("at_end", "at 2m + 2", ".3f"),
            Column("first_over_mean", "1-9 over v_1", ".2f"),
            Column("kronecker_overlap", "H and factors, k=9", ".2f"),
            Column("input_ratio", "lambda_1/lambda_2", ".2f"),
            Column("accuracy", "", ".1%"),
        ),
        group_by=("network", "layer"),
    ),
    answered=Answer(
        "It depends: the one pair that fits its samples, VGG11-W32, has no peak near its outputs and lies along"
        " the mean input in conv1 and conv2; the others are not trained enough to decide.",
        num_claims=16,
        fails=(
            "peaks-at-outputs-vgg11-w32",
            "stripe-vgg11-w32-conv3",
        ),
        inconclusive=(
            "peaks-at-outputs-vgg11-w16",
            "delayed-peaks-vgg11-w16",
            "stripe-vgg11-w16-conv1",
            "stripe-vgg11-w16-conv2",
            "stripe-vgg11-w16-conv3",
            "output-layer-falls-vgg11-w16",
            "peaks-at-outputs-resnet18-w12",
            "delayed-peaks-resnet18-w12",
            "stripe-resnet18-w12-conv1",
            "output-layer-falls-resnet18-w12",
        ),
    ),
)
