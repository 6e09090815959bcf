"""Whether weights alone, or weights and activities, tell the top c - 1 eigenvectors of a layer's output factor E[M]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Mark, Series, View
from hessmap_research.studies.layers import layer_cases as shared
from hessmap_research.studies.layers.table_8 import NUM_FIRST, ON_ALL_IMAGES, PUBLISHED, published_claims

_NETWORK = "F-100^2"
_HIDDEN = ("fc1", "fc2")
_LIMITS = (
    (_HIDDEN, "centred", "overlap of S^T(1-perp)", "above", 0.8),
    (_HIDDEN, "by_activity", "overlap of S_q", "above", 0.97),
)
_DRAWN = {"mnist": 60_000, "cifar10": NUM_FIRST}


def cases(data: str) -> tuple[Case, ...]:
    """Linear layers, trained and (after 0 epochs) as they were drawn; of networks on all images one training each."""
    networks = dict.fromkeys(network for network, _ in shared.TRAINED[data])
    small = shared.layer_cases((*((network, 0) for network in networks), *shared.TRAINED[data]), kinds=("fc",))
    long = (
        {**training, **case}
        for training, num_measured in ON_ALL_IMAGES.get(data, ())
        for case in grid(num_measured=num_measured, layer=shared.hidden_linear_layers(training["network"]), seed=[0])
    )
    return (*small, *long)


def measure(case: Case) -> dict[str, Any]:
    import numpy as np

    from hessmap.layers import layer_factors, mean_output_hessian, product_of_factors
    from hessmap.measurement.overlap import overlap_curve
    from hessmap.theory.layers import (
        activity_weighted_product,
        logit_subspace,
        output_factor_from_weights,
        row_space_without_ones,
        weight_product,
    )

    problem, weights, activities = _network(case)
    factors = layer_factors(problem, case["layer"])
    values, vectors = (part.numpy() for part in product_of_factors(factors).output_eigenpairs)
    plain = weight_product(weights, len(values))
    weighted = activity_weighted_product(weights, activities, len(values))
    hessian = mean_output_hessian(problem).numpy()
    models = {
        "from_weights": output_factor_from_weights(plain, hessian, num_activations=len(weights)),
        "from_activity": output_factor_from_weights(weighted, hessian),
    }
    top = vectors[:, : shared.NUM_OUTLIERS]

    def overlap(basis: Any) -> float:
        return overlap_curve(top, basis).at(shared.NUM_OUTLIERS)

    record: dict[str, Any] = {
        "as_printed": overlap(row_space_without_ones(plain)),
        "centred": overlap(logit_subspace(plain)),
        "by_activity": overlap(logit_subspace(weighted)),
        "top_over": {name: float(values[0] / np.linalg.eigvalsh(model)[-1]) for name, model in models.items()},
        "num_dead": int((activities[0] == 0).sum()) if activities else 0,
    }
    if not weights:
        record["of_last_layer"] = record["centred"]
    if "size" in case:
        record["training"] = _training(case)
    published = PUBLISHED.get((case["data"], case["network"], case.get("labels", "true")))
    return record | ({"published": published[case["layer"]]} if published and case["epochs"] else {})


def _network(case: Case) -> tuple[Any, list[Any], list[Any]]:
    """The problem of a case, the weights behind its layer and the activities of the units between them."""
    from hessmap.layers import fully_connected_tail
    from hessmap_research.studies.layers.measured_layer import problem_of
    from hessmap_research.studies.layers.trained_layers import untrained_layers

    if case["epochs"]:
        problem = problem_of(case)
    else:
        problem = untrained_layers(case["network"], case["data"], seed=case["seed"], recipe=shared.recipe_of(case))
    tail = fully_connected_tail(problem, case["layer"])
    return problem, [weight.numpy() for weight in tail.weights], [slopes.numpy() for slopes in tail.slopes]


def _training(case: Case) -> dict[str, Any]:
    """How far the training went, and a hash of its weights, which are not stored with the results."""
    from hessmap.records import data_hash
    from hessmap_research.studies.layers.trained_layers import trained_layers

    made = trained_layers(case["network"], case["data"], seed=case["seed"], recipe=shared.recipe_of(case))
    state = made.problem.model.state_dict()
    weights = data_hash(*(state[name].numpy() for name in sorted(state)))
    about = {"accuracy": made.run.final_accuracy, "loss": float(made.run.loss[-1]), "weights": weights}
    return about | ({"epochs": int(made.run.moments[-1])} if case["size"] == "large" else {})


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    trained = [row for row in rows if row["epochs"]]
    yield from shared.limit_claims(trained, _NETWORK, _LIMITS)
    hidden = [row for row in trained if row["layer"] != shared.layers_of(row["network"])[-1]]
    if hidden:
        for claim, better, worse in (
            ("S^T(1-perp) is nearer than the row space without S^T 1", "centred", "as_printed"),
            ("S_q is nearer than S", "by_activity", "centred"),
        ):
            leads = [row.number(better) - row.number(worse) for row in hidden]
            won = sum(lead > 0 for lead in leads)
            detail = f"in {won} of {len(leads)}, by {min(leads):.3f} to {max(leads):.3f}"
            yield Claim.counted(claim_id("nearer", better), f"Trained hidden layers: {claim}", won, len(leads), detail)
    yield from published_claims(hidden)


def _overlaps(data: str) -> tuple[Lines, ...]:
    return tuple(
        Lines(
            title=f"{data}, {network}, {layer}" + _shown_words(data, network),
            where={"data": data, "network": network, "layer": layer} | _shown_size(data, network),
            x="epochs",
            series=(
                Series("row space of S without $S^T 1$", points="as_printed"),
                Series("$S^T(1^\\perp)$", points="centred"),
                Series("by activity, $S_q$", points="by_activity"),
            ),
            x_label="epochs",
            y_label="overlap with the top 9 of E[M]",
            x_limits=(-3.0, None),
            y_limits=(0.0, 1.05),
            marks=tuple(
                Mark(known[layer], "the paper's", axis="y")
                for key, known in PUBLISHED.items()
                if key == (data, network, "true")
            ),
        )
        for network in dict.fromkeys(network for network, _ in shared.TRAINED[data])
        for layer in _HIDDEN
    )


def _seconds(case: Case) -> float:
    if "size" in case:
        return 10.0 * int(case["epochs"])
    return 1.0 if case["data"] == "digits" else 8.0


def _shown_size(data: str, network: str) -> dict[str, Any]:
    """Of LeNet5 the training on all images is drawn; the table has the small ones as well."""
    if network != "LeNet5" or data not in ON_ALL_IMAGES:
        return {}
    return {"size": "long", "num_measured": _DRAWN[data], "init": None, "labels": None}


def _shown_words(data: str, network: str) -> str:
    size = _shown_size(data, network)
    return f", all images, E[M] on {size['num_measured']:,}" if size else ""


STUDY = Study(
    name="layers/subspace",
    question="Do the weights behind a layer tell the top eigenvectors of its output factor?",
    reference="Wu et al. 2022, appendix G.1 and Table 8",
    cases=cases,
    measure=measure,
    data=shared.DATA,
    checks=(Check("of_last_layer", 1.0, "close", 1e-9),),
    claims=claims,
    seconds=_seconds,
    families={
        "centred": "F-100^2 on digits, hidden layers: overlap of S^T(1-perp) above 0.8",
        "by-activity": "F-100^2 on digits, hidden layers: overlap of S_q above 0.97",
        "published": "LeNet5: the overlap reaches the paper's",
    },
    view=View(
        figures=tuple(figure for data in shared.DATA for figure in _overlaps(data)),
        table=(
            *shared.LAYER,
            "size",
            "init",
            "labels",
            Column("num_measured", "E[M] on"),
            Column("as_printed", "without S^T 1", ".3f"),
            Column("centred", "S^T(1-perp)", ".3f"),
            Column("published", "paper", ".3f"),
            Column("by_activity", "S_q", ".3f"),
            Column("top_over.from_weights", "tau_1 / M~", ".2f"),
            Column("top_over.from_activity", "tau_1 / M_q", ".2f"),
            Column("num_dead", "dead units", ".1f"),
        ),
        group_by=(*shared.LAYER, "size", "init", "labels", "num_measured"),
    ),
    answered=Answer(
        "It depends on the activities: weighted by them the space is nearer in 70 of 70 trained hidden layers; from"
        " weights alone the paper's overlaps of LeNet5 are not reached, by its own recipe either.",
        num_claims=18,
        cases="agrees",
        fails=(
            "centred-f-100-2-digits-100-fc1-fc2",
            "published-lenet5-mnist-fc1",
            "published-lenet5-mnist-long-fc1",
            "published-lenet5-mnist-long-uniform-fc1",
            "published-lenet5-mnist-fc2",
            "published-lenet5-mnist-long-fc2",
            "published-lenet5-mnist-long-uniform-fc2",
            "published-lenet5-cifar10-fc1",
            "published-lenet5-cifar10-long-fc1",
            "published-lenet5-cifar10-published-fc1",
            "published-lenet5-cifar10-fc2",
            "published-lenet5-cifar10-long-fc2",
            "published-lenet5-cifar10-published-fc2",
        ),
    ),
)
