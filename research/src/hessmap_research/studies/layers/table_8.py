"""Table 8 of Wu et al. 2022: which networks it has, how they are trained here, and what is claimed of their ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hessmap_research.runner.claims import Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case
from hessmap_research.studies.layers import layer_cases as shared
from hessmap_research.studies.layers.trained_layers import recipe_for

# In fc3 of LeNet5, the last layer, S is the identity: every network has 1 there.
PUBLISHED = {
    ("mnist", "LeNet5", "true"): {"fc1": 0.890, "fc2": 0.931, "fc3": 0.999},
    ("mnist", "F-1500^3", "true"): {"fc1": 0.602, "fc2": 0.967, "fc3": 0.982},
    ("cifar10", "LeNet5", "true"): {"fc1": 0.951, "fc2": 0.972, "fc3": 0.999},
    ("cifar10", "LeNet5", "random"): {"fc1": 0.213, "fc2": 0.701, "fc3": 0.999},
}
# On all images: how a network was trained, and on how many of the images E[M] is taken. As in the paper that is all, of
# photographs at the end alone, some 200 s of a core a layer; the first of them say how it went on the way.
NUM_FIRST = 2000
_NUM_IMAGES = {"mnist": 60_000, "cifar10": 50_000}
_LONG: Case = {"network": "LeNet5", "size": "long"}
ON_ALL_IMAGES: dict[str, tuple[tuple[Case, tuple[int, ...]], ...]] = {
    "mnist": (
        *(({**_LONG, "epochs": epochs}, (NUM_FIRST, 60_000)) for epochs in (10, 25, 100)),
        *(({**_LONG, "epochs": epochs, "init": "uniform"}, (60_000,)) for epochs in (10, 50)),
        ({"network": "F-1500^3", "size": "large", "epochs": 60}, (60_000,)),
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
    """The rows with E[M] on so many images, by how their networks were trained."""
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
