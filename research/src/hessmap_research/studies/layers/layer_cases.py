"""Which layers of which networks the studies look at, what the paper prints of them, and what is claimed of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from operator import gt, lt
from typing import NamedTuple

from hessmap.errors import InvalidInput, sentence
from hessmap_research.runner.claims import Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, grid
from hessmap_research.studies.layers.trained_layers import Recipe, recipe_for

DATA = ("digits", "mnist", "fashion_mnist", "cifar10")
LAYER = ("data", "network", "epochs", "layer")  # the fields that name a layer of a network, whatever its seed
NUM_CLASSES = 10
NUM_OUTLIERS = NUM_CLASSES - 1
# Network and epochs. The digits after 100 epochs (loss 0.3) and after 300 (0.08): some things change in between.
TRAINED = {
    "digits": (("F-100^2", 100), ("F-100^2", 300)),
    "mnist": (("F-200^2", 60), ("LeNet5", 30)),
    "fashion_mnist": (("F-200^2", 40),),
    "cifar10": (("LeNet5", 60),),
}
NORMALISED = {
    "digits": (("F-100^2-BN", 60),),
    "mnist": (("F-200^2-BN", 30),),
    "fashion_mnist": (("F-200^2-BN", 30),),
    "cifar10": (("LeNet5-BN", 60),),
}
SHOWN = tuple((data, network, epochs) for data in DATA for network, epochs in TRAINED[data])
_SEEDS = range(3)
# LeNet5 on all images, of MNIST until every one is right; Hessians on the first of them.
NUM_MEASURED = 2000
ON_ALL_IMAGES: dict[str, Case] = {
    data: {"network": "LeNet5", "size": "long", "epochs": epochs, "num_measured": NUM_MEASURED}
    for data, epochs in (("mnist", 50), ("cifar10", 90))
}
NUM_ON_ALL_IMAGES = 2  # models
# The same network as published, without momentum, for 300 of the paper's 1,000 epochs: about 3,000 CPU-seconds.
OWN_RECIPE: Case = {"network": "LeNet5", "size": "published", "epochs": 300}


def layer_cases(trained: Sequence[tuple[str, int]], kinds: Sequence[str] = ("fc", "conv")) -> tuple[Case, ...]:
    """Every layer of some networks (names and epochs) whose name begins with one of the kinds, three seeds each."""
    return tuple(
        {"network": network, "epochs": epochs, "layer": layer, "seed": seed}
        for network, epochs in trained
        for layer in layers_of(network)
        if layer.rstrip("0123456789") in kinds
        for seed in _SEEDS
    )


def cases_on_all_images(data: str, layers: Sequence[str] = ()) -> tuple[Case, ...]:
    """Some layers, by default every one, of the networks trained on all images; of other data sets none."""
    if data != "cifar10":
        return ()
    some = grid(layer=layers or layers_of("LeNet5"), seed=range(NUM_ON_ALL_IMAGES))
    return tuple({**ON_ALL_IMAGES[data], **case} for case in some)


def cases_by_own_recipe(data: str, layers: Sequence[str] = ()) -> tuple[Case, ...]:
    """Some layers, by default every one, of the network trained by the paper's own recipe; on images alone."""
    if data != "cifar10":
        return ()
    some = grid(layer=layers or layers_of("LeNet5"), seed=[0])
    return tuple({**ON_ALL_IMAGES[data], **OWN_RECIPE, **case} for case in some)


def layers_of(network: str) -> tuple[str, ...]:
    """The layers of a fully connected network or of a LeNet5, in order of execution.

    >>> layers_of("F-100^2-BN")
    ('fc1', 'fc2', 'fc3')
    """
    base = network.removesuffix("-BN")
    if base.startswith("LeNet5"):
        return ("conv1", "conv2", "fc1", "fc2", "fc3")
    if not base.startswith("F-"):
        raise InvalidInput(sentence("layers are listed for F-n^m and LeNet5", f"got {network!r}"))
    num_hidden = sum(int(power or 1) for _, power in re.findall(r"(\d+)(?:\^(\d+))?", base))
    return tuple(f"fc{number}" for number in range(1, num_hidden + 2))


def hidden_linear_layers(network: str) -> tuple[str, ...]:
    """The linear layers but the last.

    >>> hidden_linear_layers("LeNet5")
    ('fc1', 'fc2')
    """
    return tuple(layer for layer in layers_of(network)[:-1] if kind_of(layer) == "fc")


def seconds_of(case: Case) -> float:
    """A guess for a layer whose network was trained by a case before it."""
    return {"digits": 3.0, "mnist": 20.0, "fashion_mnist": 20.0, "cifar10": 40.0}[case["data"]]


def recipe_of(case: Case) -> Recipe:
    """The recipe of the case's size (small where it has none), its epochs and, where it says so, measured samples,
    initialisation and random labels."""
    changes = {name: case[name] for name in ("num_measured", "init") if name in case}
    if case.get("labels") == "random":
        changes["has_random_labels"] = True
    return recipe_for(case["network"], case["data"], case.get("size", "small"), epochs=case["epochs"], **changes)


class Moments(NamedTuple):
    """(v_1 . E[x])^2 and lambda_1 / lambda_2."""

    squared_cosine: tuple[float, float, float]
    ratio: tuple[float, float, float]


# Wu et al. 2022, Tables 6 and 9 (linear layers) and 7 (convolutions): how near E[x x^T] is to rank one. Every triple is
# the mean, the least and the largest over all runs and all layers but the first of the network.
PUBLISHED = {
    ("mnist", "F-200^2", "fc"): Moments((1.000, 1.000, 1.000), (12.29, 9.65, 16.16)),
    ("mnist", "F-600^2", "fc"): Moments((0.999, 0.999, 0.999), (12.00, 11.42, 13.00)),
    ("mnist", "F-600^4", "fc"): Moments((1.000, 0.999, 1.000), (17.81, 7.33, 28.00)),
    ("mnist", "F-600^8", "fc"): Moments((0.991, 0.965, 1.000), (6.63, 2.28, 11.15)),
    ("mnist", "F-200^2-BN", "fc"): Moments((0.062, 0.001, 0.260), (1.16, 1.04, 1.30)),
    ("mnist", "F-600^2-BN", "fc"): Moments((0.026, 0.000, 0.063), (1.13, 1.02, 1.26)),
    ("mnist", "F-600^4-BN", "fc"): Moments((0.027, 0.000, 0.146), (1.11, 1.03, 1.19)),
    ("cifar10", "F-600^2", "fc"): Moments((0.999, 0.998, 1.000), (9.24, 4.74, 13.74)),
    ("cifar10", "LeNet5", "fc"): Moments((0.998, 0.997, 0.999), (7.21, 5.88, 9.02)),
    ("cifar10", "LeNet5", "conv"): Moments((0.999, 0.998, 0.999), (15.87, 11.15, 27.20)),
    ("cifar10", "LeNet5-(fc1-80)", "fc"): Moments((0.998, 0.996, 0.999), (7.80, 6.77, 11.01)),
    ("cifar10", "LeNet5-(fc1-80)", "conv"): Moments((0.998, 0.998, 0.999), (12.36, 9.53, 13.36)),
    ("cifar10", "LeNet5-(fc1-100)", "fc"): Moments((0.997, 0.995, 0.999), (7.42, 6.20, 9.10)),
    ("cifar10", "LeNet5-(fc1-100)", "conv"): Moments((0.999, 0.999, 0.999), (19.49, 16.69, 21.92)),
    ("cifar10", "LeNet5-(fc1-150)", "fc"): Moments((0.998, 0.992, 0.999), (7.35, 5.34, 9.62)),
    ("cifar10", "LeNet5-(fc1-150)", "conv"): Moments((0.999, 0.998, 0.999), (12.86, 7.65, 16.34)),
    ("cifar10", "F-1500^3", "fc"): Moments((0.999, 0.997, 1.000), (13.27, 6.10, 18.41)),
    ("cifar10", "LeNet5-BN", "fc"): Moments((0.210, 0.001, 0.803), (1.54, 1.20, 1.89)),
    ("cifar10", "VGG11-W32", "fc"): Moments((0.990, 0.988, 0.993), (6.02, 5.57, 6.51)),
    ("cifar10", "VGG11-W32", "conv"): Moments((0.995, 0.991, 0.999), (5.31, 2.39, 9.09)),
}


def published_moments(data: str, network: str, layer: str) -> dict[str, float]:
    """The paper's means for a layer of this kind; nothing for the first layer, which its tables leave out."""
    known = PUBLISHED.get((data, network, kind_of(layer)))
    is_first = layer == ("fc1" if network.startswith("F-") else "conv1")
    return {} if known is None or is_first else {"squared_cosine": known.squared_cosine[0], "ratio": known.ratio[0]}


def kind_of(layer: str) -> str:
    """The kind "fc" or "conv"; convolutions on shortcuts count as such."""
    return "fc" if layer.startswith("fc") else "conv"


def limit_claims(
    rows: Sequence[Row], network: str, limits: Sequence[tuple[Sequence[str], str, str, str, float]]
) -> Iterator[Claim]:
    """The claims that a number of some layers of a network is beyond a limit, in every seed.

    ``limits`` are layers, the name of a field, what it is called, "above" or "below", and the limit; each is judged on
    each data set at each length of training.
    """
    of_network = [row for row in rows if row["network"] == network]
    for data, epochs in dict.fromkeys((row["data"], row["epochs"]) for row in of_network):
        for layers, name, words, side, limit in limits:
            chosen = [row for row in of_network if (row["data"], row["epochs"]) == (data, epochs)]
            chosen = [row for row in chosen if row["layer"] in layers]
            is_right = partial(gt if side == "below" else lt, limit)
            yield Claim.about(
                claim_id(name, network, data, epochs, *layers),
                f"{network} on {data} after {epochs} epochs, {', '.join(layers)}: {words} {side} {limit:g}",
                [row.number(name) for row in chosen],
                is_right,
                ranges(by_layer(chosen, name)),
            )


def by_layer(rows: Sequence[Row], name: str) -> dict[str, list[float]]:
    """The values under a name, by layer."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["layer"], []).append(row.number(name))
    return found


def by_network(rows: Sequence[Row]) -> Iterator[tuple[str, str, list[Row]]]:
    """What was trained on, in words, the network, and their rows."""
    for data, network in dict.fromkeys((trained_on(row), row["network"]) for row in rows):
        yield data, network, [row for row in rows if (trained_on(row), row["network"]) == (data, network)]


def trained_on(row: Row) -> str:
    """The data set, or all images of it and what is special about the training."""
    if row.get("size") not in ("long", "published"):
        return str(row["data"])
    return f"all images of {row['data']}{special_training(row)}"


def special_training(row: Row) -> str:
    """How a training differs from one by momentum, from Glorot's initialisation, on true labels; in words or empty."""
    own = f", {row['epochs']} epochs of the paper's recipe" if row.get("size") == "published" else ""
    init = ", from torch's initialisation" if "init" in row else ""
    return own + init + (", random labels" if "labels" in row else "")


def training_id(row: Row) -> str:
    """The network, the data and what is special about the training of a row, for the ids of claims."""
    return claim_id(*(row.get(name) for name in ("network", "data", "size", "init", "labels")))


def ranges(values: dict[str, list[float]]) -> str:
    """Smallest and largest value under each name: "fc1 0.85 to 0.89"."""
    return ", ".join(f"{name} {min(some):.4g} to {max(some):.4g}" for name, some in values.items() if some)


def convergence_claim(rows: Sequence[Row]) -> Claim:
    """What every statement on eigenvectors needs."""
    claim = "The eigenpairs of every layer were found to their tolerance"
    return Claim.about("eigenpairs-found", claim, rows, lambda row: row["are_all_found"], "of {right} of {total}")
