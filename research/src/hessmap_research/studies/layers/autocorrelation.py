"""The two factors of a layer: E[x x^T] is nearly of rank one along E[x], and E[M] has c - 1 large eigenvalues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import INDEX, Column, Lines, Mark, Series, View
from hessmap_research.studies.layers import layer_cases as shared
from hessmap_research.studies.layers.trained_layers import recipe_for

_NETWORK = "F-100^2"
_ALL = ("fc1", "fc2", "fc3")
_LIMITS = (
    (_ALL, "squared_cosine", "(v1 . E[x])^2", "above", 0.999),
    (_ALL, "eigenvalue_ratio", "lambda_1 / lambda_2", "above", 6.0),
    (("fc1",), "gap", "tau_9 / tau_10", "above", 5.0),
    (("fc2",), "gap", "tau_9 / tau_10", "above", 8.0),
)
_ROUNDING = 1e-12
_MORE = {"digits": (("F-200^2", 300),), "mnist": (("F-600^2-BN", 30), ("F-600^4-BN", 30))}


def cases(data: str) -> tuple[Case, ...]:
    return shared.layer_cases((*shared.TRAINED[data], *_MORE.get(data, ()), *shared.NORMALISED[data]))


def measure(case: Case) -> dict[str, Any]:
    from hessmap.layers import layer_factors, product_of_factors
    from hessmap.layers.comparison import autocorrelation, class_outliers
    from hessmap_research.studies.layers.measured_layer import problem_of

    problem = problem_of(case)
    factors = layer_factors(problem, case["layer"])
    inputs = autocorrelation(factors.input_factor, factors.mean_patches)
    outputs = product_of_factors(factors).output_eigenpairs[0].numpy()
    record: dict[str, Any] = {
        "loss": problem.risk(),
        "squared_cosine": inputs.squared_cosine,
        "eigenvalue_ratio": inputs.eigenvalue_ratio,
        "ratio_bound": inputs.ratio_bound,
        "input_eigenvalues": inputs.eigenvalues[:20] / inputs.eigenvalues[0],
        "output_eigenvalues": outputs[:20][outputs[:20] > _ROUNDING * outputs[0]] / outputs[0],
    }
    if len(outputs) >= shared.NUM_CLASSES:
        outliers = class_outliers(outputs, shared.NUM_CLASSES)
        record |= {"gap": outliers.ratio, "num_outliers": outliers.num_outliers, "share": outliers.share}
    known = shared.published_moments(case["data"], case["network"], case["layer"])
    return record | ({"published": known} if known else {})


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    yield from shared.limit_claims(rows, _NETWORK, _LIMITS)
    counted = [row for row in rows if row["network"] == _NETWORK and row["layer"] in ("fc1", "fc2")]
    claim = f"{_NETWORK}, hidden layers: the eigenvalues of E[M] fall most after the first c - 1 = 9"
    detail = "in {right} of {total} layers"
    yield Claim.about("outliers", claim, counted, lambda row: row["num_outliers"] == shared.NUM_OUTLIERS, detail)
    for (data, network, kind), known in shared.PUBLISHED.items():
        same = [row for row in rows if "published" in row and (row["data"], row["network"]) == (data, network)]
        chosen = [row for row in same if row["layer"].startswith(kind)]
        if chosen:
            where = f"{network} on {recipe_for(network, data).num_train:,} images of {data}, {kind}"
            for words, name, published in (
                ("lambda_1 / lambda_2", "eigenvalue_ratio", known.ratio),
                ("(v1 . E[x])^2", "squared_cosine", known.squared_cosine),
            ):
                within = claim_id("published", name, network, data, kind)
                yield _within(within, f"{where}: mean {words}", chosen, name, published)


def _within(within: str, words: str, rows: Sequence[Row], name: str, published: tuple[float, float, float]) -> Claim:
    """The mean over layers and seeds beside the range of the paper's table, rounded as that is."""
    mean, least, largest = published
    found = [row.number(name) for row in rows]
    ours = sum(found) / len(found)
    detail = f"mean {ours:.4g}, {shared.ranges({'all': found})}; the paper's mean {mean:g}"
    claim = f"{words} lies in the paper's {least} to {largest}"
    return Claim(within, claim, least <= round(ours, 3) <= largest, detail)


def _falling(data: str, network: str, epochs: int, field: str, words: str) -> Lines:
    return Lines(
        title=f"{data}, {network}, {epochs} epochs: {words}",
        where={"data": data, "network": network, "epochs": epochs},
        x=INDEX,
        series=(Series("{layer}", line=field, points=field),),
        split="layer",
        x_label="position",
        y_label="eigenvalue / largest",
        y_scale="log",
        y_limits=(1e-4, 1.5),
        marks=(Mark(shared.NUM_OUTLIERS + 0.5, "c - 1"),) if field.startswith("output") else (),
    )


STUDY = Study(
    name="layers/autocorrelation",
    question="Is the second moment of a layer's inputs of rank one along their mean, and that of its outputs of c - 1?",
    reference="Wu et al. 2022, equation 264 and Tables 6, 7 and 9",
    cases=cases,
    measure=measure,
    data=shared.DATA,
    checks=(Check("eigenvalue_ratio", "ratio_bound", "at_least"),),
    claims=claims,
    seconds=lambda case: 1.0 if case["data"] == "digits" else 8.0,
    families={
        "squared-cosine": "F-100^2 on digits: (v1 . E[x])^2 above 0.999",
        "eigenvalue-ratio": "F-100^2 on digits: lambda_1 / lambda_2 above 6",
        "gap": "F-100^2 on digits: tau_9 / tau_10 above 5 in fc1, above 8 in fc2",
        "published-eigenvalue-ratio": "The mean lambda_1 / lambda_2 lies in the paper's range",
        "published-squared-cosine": "The mean (v1 . E[x])^2 lies in the paper's range",
    },
    view=View(
        figures=tuple(
            _falling(*shown, field, words)  # three networks in a row, the output factors below the input factors
            for first in range(0, len(shared.SHOWN), 3)
            for field, words in (("input_eigenvalues", "E[x x$^T$]"), ("output_eigenvalues", "E[M]"))
            for shown in shared.SHOWN[first : first + 3]
        ),
        table=(
            *shared.LAYER,
            Column("loss", "loss", ".3f"),
            Column("squared_cosine", "(v1.Ex)^2", ".4f"),
            Column("published.squared_cosine", "paper", ".3f"),
            Column("eigenvalue_ratio", "lambda_1/lambda_2", ".2f"),
            Column("published.ratio", "paper", ".2f"),
            Column("ratio_bound", "bound", ".2f"),
            Column("gap", "tau_9/tau_10", ".2f"),
            Column("num_outliers", "outliers"),
            Column("share", "their share", ".1%"),
        ),
        group_by=shared.LAYER,
        panels_in_a_row=3,
    ),
    answered=Answer(
        "It depends: without batch-norm the first eigenvector is nearly along the mean in most layers, standing"
        " out less than printed on CIFAR-10; E[M] falls most after c - 1 = 9 eigenvalues in 11 of 12 hidden layers"
        " of F-100^2.",
        num_claims=23,
        cases="agrees",
        fails=(
            "gap-f-100-2-digits-300-fc1",
            "gap-f-100-2-digits-300-fc2",
            "outliers",
            "published-squared-cosine-f-200-2-mnist-fc",
            "published-eigenvalue-ratio-f-600-2-bn-mnist-fc",
            "published-squared-cosine-f-600-2-bn-mnist-fc",
            "published-eigenvalue-ratio-f-600-4-bn-mnist-fc",
            "published-eigenvalue-ratio-lenet5-cifar10-fc",
            "published-squared-cosine-lenet5-cifar10-fc",
            "published-eigenvalue-ratio-lenet5-cifar10-conv",
            "published-squared-cosine-lenet5-cifar10-conv",
        ),
    ),
)
