"""Whether weights alone, or weights and activities, tell the top c - 1 eigenvectors of a layer's output factor E[M]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Mark, Series, View
from hessmap_research.studies.layers import layer_cases as shared
from hessmap_research.studies.layers.trained_layers import recipe_for

# In fc3 of LeNet5, the last layer, S is the identity: every network has 1 there.
PUBLISHED = {
    ("mnist", "LeNet5", "true"): {"fc1": 0.890, "fc2": 0.931, "fc3": 0.999},
    ("mnist", "LeNet5", "random"): {"fc1": 0.518, "fc2": 0.912, "fc3": 0.999},
    ("mnist", "F-1500^3", "true"): {"fc1": 0.602, "fc2": 0.967, "fc3": 0.982},
    ("cifar10", "LeNet5", "true"): {"fc1": 0.951, "fc2": 0.972, "fc3": 0.999},
    ("cifar10", "LeNet5", "random"): {"fc1": 0.213, "fc2": 0.701, "fc3": 0.999},
}
# On all images: how a network was trained, and on how many of the images E[M] is taken. As in the paper that is all, of
# images at the end alone, about 200 CPU-seconds per layer; the first images alone show the course of training.
NUM_FIRST = 2000
_NUM_IMAGES = {"mnist": 60_000, "cifar10": 50_000}
_LONG: Case = {"network": "LeNet5", "size": "long"}
ON_ALL_IMAGES: dict[str, tuple[tuple[Case, tuple[int, ...]], ...]] = {
    "mnist": (
        *(({**_LONG, "epochs": epochs}, (NUM_FIRST, 60_000)) for epochs in (10, 25, 100)),
        *(({**_LONG, "epochs": epochs, "init": "uniform"}, (60_000,)) for epochs in (10, 50)),
        *(({**shared.OWN_RECIPE, "epochs": epochs}, (NUM_FIRST, 60_000)) for epochs in (10, 30, 100)),
        ({"network": "F-1500^3", "size": "large", "epochs": 60}, (NUM_FIRST, 60_000)),
        ({"network": "F-1500^3", "size": "published", "epochs": 10}, (NUM_FIRST,)),
        ({**_LONG, "epochs": 100, "labels": "random"}, (NUM_FIRST, 60_000)),
    ),
    "cifar10": (
        *(({**_LONG, "epochs": epochs}, (NUM_FIRST,)) for epochs in (10, 30)),
        ({**_LONG, "epochs": 90}, (NUM_FIRST, 50_000)),
        *(({**shared.OWN_RECIPE, "epochs": epochs}, (NUM_FIRST,)) for epochs in (10, 30, 100)),
        (shared.OWN_RECIPE, (NUM_FIRST, 50_000)),
        ({**_LONG, "epochs": 90, "labels": "random"}, (NUM_FIRST, 50_000)),
    ),
}


def published_claims(hidden: Sequence[Row]) -> Iterator[Claim]:
    """Table 8: small trainings of LeNet5, three seeds each, and those on all images, one each, judged by their ends."""
    for (data, network, labels), known in PUBLISHED.items():
        same = [row for row in hidden if (row["data"], row["network"], _labels(row)) == (data, network, labels)]
        for layer in shared.hidden_linear_layers(network):
            here = [row for row in same if row["layer"] == layer]
            small = [row for row in here if "size" not in row]
            if small:
                where = f"{network} on {recipe_for(network, data).num_train:,} images of {data}, {layer}"
                ours = [row.number("centred") for row in small]
                claim = f"{where}: the overlap reaches the paper's {known[layer]}"
                yield Claim(
                    claim_id("published", network, data, layer),
                    claim,
                    min(ours) >= known[layer],
                    shared.ranges({"ours": ours}),
                )
            for how, rows in _trainings(here, _NUM_IMAGES[data]).items():
                if labels == "true":
                    claim = f"{network} on {how}, {layer}: the overlap reaches the paper's {known[layer]}"
                    yield Claim(
                        claim_id("published", shared.training_id(rows[-1]), layer),
                        claim,
                        rows[-1].number("centred") >= known[layer],
                        _along(rows),
                    )
                else:
                    yield from _beside_true_labels(rows[-1], hidden, known[layer])


def _labels(row: Row) -> str:
    return str(row.get("labels", "true"))


def _beside_true_labels(row: Row, hidden: Sequence[Row], published: float) -> Iterator[Claim]:
    """The paper's overlaps of LeNet5 are lower on random labels; beside the same training on true ones."""
    case = {name: value for name, value in row.case.items() if name != "labels"}
    for true in hidden:
        if dict(true.case) == case:
            claim = (
                f"{row['network']} on all images of {row['data']}, {row['layer']}: random labels overlap less than true"
            )
            ours = f"{row.number('centred'):.3f} and {true.number('centred'):.3f}"
            at = PUBLISHED[row["data"], row["network"], "true"][row["layer"]]
            detail = f"{ours}, {row.number('training.accuracy'):.1%} right; paper {published} and {at}"
            yield Claim(
                claim_id("random-labels", row["network"], row["data"], row["layer"]),
                claim,
                row.number("centred") < true.number("centred"),
                detail,
            )


def _trainings(rows: Sequence[Row], num_measured: int) -> dict[str, list[Row]]:
    """The rows with E[M] on ``num_measured`` images, by how their networks were trained."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.get("num_measured") == num_measured:
            found.setdefault(f"all images of {row['data']}{shared.special_training(row)}", []).append(row)
    return found


def _along(rows: Sequence[Row]) -> str:
    """The overlaps after each number of epochs, and how many images were right."""
    return "; ".join(
        f"after {row.get('training.epochs', row['epochs'])} epochs {row.number('centred'):.3f}, "
        f"by activity {row.number('by_activity'):.3f}, with {row.number('training.accuracy'):.3%} right"
        for row in rows
    )


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
    from hessmap.layers import downstream_weights
    from hessmap_research.studies.layers.measured_layer import problem_of
    from hessmap_research.studies.layers.trained_layers import untrained_layers

    if case["epochs"]:
        problem = problem_of(case)
    else:
        problem = untrained_layers(case["network"], case["data"], seed=case["seed"], recipe=shared.recipe_of(case))
    tail = downstream_weights(problem, case["layer"])
    return problem, [weight.numpy() for weight in tail.weights], [slopes.numpy() for slopes in tail.derivatives]


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
    printed = [row for row in hidden if "size" in row and "published" in row]
    yield Claim.about(
        "table-8-nearer",
        "Networks on all images, every length of training: S_q is nearer than S to the paper's overlap",
        printed,
        lambda row: _distance(row, "by_activity") < _distance(row, "centred"),
    )


def _distance(row: Row, field: str) -> float:
    """From the overlap of Table 8."""
    return abs(row.number(field) - row.number("published"))


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
    question="Do the weights behind a layer determine the top eigenvectors of its output factor?",
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
        "It depends on the activities: weighted by them the space is nearer in every trained hidden layer; from"
        " weights alone the paper's overlaps of LeNet5 are not reached, by its own recipe either.",
        num_claims=20,
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
            "table-8-nearer",
        ),
    ),
)
