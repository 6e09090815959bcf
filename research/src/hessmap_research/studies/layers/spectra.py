"""The largest eigenvalues of a layer's Hessian beside those of E[M] (x) E[x x^T], and the gap after c - 1 of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import INDEX, Column, Lines, Mark, Series, View
from hessmap_research.studies.layers import layer_cases as shared
from hessmap_research.studies.layers.trained_layers import Recipe, first_recipe

_RANDOM_NETWORK = ("F-16", 600)
_WITHIN = 0.25


def cases(data: str) -> tuple[Case, ...]:
    """The networks with true labels; of the digits also a narrow one that remembers random labels."""
    true = tuple({**case, "labels": "true"} for case in shared.layer_cases(shared.TRAINED[data]))
    random = tuple({**case, "labels": "random"} for case in shared.layer_cases([_RANDOM_NETWORK]))
    return true + (random if data == "digits" else ())


def _recipe(case: Case) -> Recipe:
    is_random = case["labels"] == "random"
    return first_recipe(case["network"], case["data"], "random") if is_random else shared.recipe_of(case)


def measure(case: Case) -> dict[str, Any]:
    import numpy as np

    from hessmap.layers.comparison import class_outliers
    from hessmap_research.studies.layers.measured_layer import eigenpairs_of, hessian_of

    hessian = hessian_of(case, _recipe(case))
    found = eigenpairs_of(case, hessian)
    count = len(found.eigenvalues)
    product = hessian.kronecker_approximation()
    outputs, inputs = (values.numpy() for values, _ in (product.output_eigenpairs, product.input_eigenpairs))
    kronecker = product.leading(count).eigenvalues.numpy()
    far = np.abs(kronecker[: shared.NUM_OUTLIERS] / found.eigenvalues[: shared.NUM_OUTLIERS] - 1)
    record = {
        "hessian": found.eigenvalues,
        "kronecker": kronecker,
        "scaled_output": inputs[0] * outputs[:count],
        "top_ratio": float(found.eigenvalues[0] / kronecker[0]),
        "farthest_of_nine": float(far.max()),
        "trace_ratio": hessian.trace / product.trace,
        "gap_of_hessian": class_outliers(found.eigenvalues, shared.NUM_CLASSES).ratio,
        "are_all_found": found.converged,
    }
    if len(outputs) >= shared.NUM_CLASSES:
        record["gap_of_output"] = class_outliers(outputs, shared.NUM_CLASSES).ratio
    return record


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    yield shared.convergence_claim(rows)
    true = [row for row in rows if row["labels"] == "true"]
    for data, network, chosen in shared.by_network(true):
        tops = shared.by_layer([row for row in chosen if row["layer"].startswith("fc")], "top_ratio")
        holds = all(abs(top - 1) < _WITHIN for some in tops.values() for top in some)
        claim = f"{network} on {data}, linear layers: lambda_1 is within {_WITHIN:.0%} of the Kronecker product's"
        yield Claim(claim_id("top-eigenvalue", shared.training_id(chosen[0])), claim, holds, shared.ranges(tops))
    for of, name in (("E[M]", "gap_of_output"), ("the layer Hessian", "gap_of_hessian")):
        gaps = {
            labels: [row.number(name) for row in _hidden(rows) if row["labels"] == labels]
            for labels in ("true", "random")
        }
        if all(gaps.values()):
            claim = f"Digits, hidden layers: the gap after 9 eigenvalues of {of} is smaller with random labels"
            yield Claim(
                claim_id("random-labels", name), claim, max(gaps["random"]) < min(gaps["true"]), shared.ranges(gaps)
            )


def _hidden(rows: Sequence[Row]) -> list[Row]:
    """Of the digits: layers that are not the last of their network."""
    return [row for row in rows if row["data"] == "digits" and row["layer"] != shared.layers_of(row["network"])[-1]]


def _spectrum(data: str, network: str, epochs: int, layer: str, labels: str = "true") -> Lines:
    return Lines(
        title=f"{data}, {network} ({labels} labels, {epochs} epochs), {layer}",
        where={"data": data, "network": network, "epochs": epochs, "layer": layer, "labels": labels, "seed": 0},
        x=INDEX,
        series=(
            Series("layer Hessian, measured", points="hessian"),
            Series("Kronecker product, predicted", line="kronecker"),
            Series("lower bound of the product, $\\lambda_1(E[xx^T])$ times E[M]", dashed="scaled_output"),
        ),
        x_limits=(0.0, 40.5),
        x_label="position",
        y_label="eigenvalue",
        y_scale="log",
        marks=(Mark(shared.NUM_OUTLIERS + 0.5, "c - 1"),),
    )


STUDY = Study(
    name="layers/spectra",
    question="Are the largest eigenvalues of a layer's Hessian those of its two factors, and do c - 1 stand out?",
    reference="Wu et al. 2022, section 5.2 and Figure 3",
    cases=cases,
    measure=measure,
    data=shared.DATA,
    claims=claims,
    seconds=shared.seconds_of,
    view=View(
        figures=(
            _spectrum("digits", "F-100^2", 300, "fc1"),
            _spectrum("digits", "F-100^2", 300, "fc2"),
            _spectrum("digits", *_RANDOM_NETWORK, "fc1", "random"),
            _spectrum("mnist", "F-200^2", 60, "fc2"),
            _spectrum("mnist", "LeNet5", 30, "fc1"),
            _spectrum("fashion_mnist", "F-200^2", 40, "fc2"),
            _spectrum("cifar10", "LeNet5", 60, "fc1"),
        ),
        table=(
            *shared.LAYER,
            Column("labels", "labels"),
            Column("top_ratio", "lambda_1 / Kronecker's", ".3f"),
            Column("farthest_of_nine", "farthest of 9", ".1%"),
            Column("trace_ratio", "trace / Kronecker's", ".3f"),
            Column("gap_of_hessian", "gap at 9, H", ".3g"),
            Column("gap_of_output", "gap at 9, E[M]", ".3g"),
        ),
        group_by=(*shared.LAYER, "labels"),
    ),
    answered=Answer(
        "It depends on the data: the largest is within 25% of the Kronecker product's on digits and MNIST, not on"
        " Fashion-MNIST and CIFAR-10; c - 1 stand out in E[M] of the digits, in the layer itself not always.",
        num_claims=8,
        fails=(
            "top-eigenvalue-f-200-2-fashion-mnist-true",
            "top-eigenvalue-lenet5-cifar10-true",
            "random-labels-gap-of-hessian",
        ),
    ),
)
