"""``make pictures``: draw the pictures of all studies from the committed results.

``python research/docs/hooks/pictures.py fcn/bias layers/spectra`` draws some of them.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from hessmap_research.runner.collection import Collection, collection_from_results
from hessmap_research.runner.registry import find
from hessmap_research.views.figure import write_study_figure
from hessmap_research.views.panels import matches

RESEARCH = Path(__file__).parents[2]
PICTURES = RESEARCH / "docs" / "pictures"
# Studies whose records of all data sets would be too many panels for one picture: the set that is shown.
SHOWN_DATA = {
    "cnn/lenet": "digits",
    "cnn/locality": "cifar10",
    "cnn/rank-vs-channels": "cifar10",
    "cnn/rank-vs-filter": "cifar10",
    "cnn/rank-vs-samples": "cifar10",
    "cnn/reconstruction": "digits",
    "cnn/samples-equal-inputs": "cifar10",
    "cnn/training": "digits",
    "fcn/bias": "digits",
    "fcn/effective-parameters": "cifar10",
    "fcn/nonlinear-spectrum": "mnist",
    "fcn/rank-vs-depth": "cifar10",
    "fcn/rank-vs-samples": "cifar10",
    "fcn/rank-vs-width": "cifar10",
    "layers/clusters": "digits",
}
# Studies of which a picture of all records would be too large: the records that are not shown, None standing for a
# field that they do not have.
NOT_SHOWN: dict[str, tuple[dict[str, object], ...]] = {
    "function/gaussian-inputs": ({"variant": "gaussian 1, linear target"},),
    "function/tripoints": ({"shape": "hook 1.0/0.5"}, {"shape": "sine 0.3/1.0"}, {"shape": "sine 0.7/0.9"}),
    "layers/batch-norm": ({"data": "mnist"}, {"data": "fashion_mnist"}, {"data": "cifar10", "network": "LeNet5"}),
    "layers/clusters": ({"space": "weights"},),
    "layers/correspondence": (
        {"data": "digits", "layer": "fc1"},
        {"data": "mnist"},
        {"data": "fashion_mnist"},
        {"data": "cifar10", "size": None},
    ),
    "layers/deep-convolutions": tuple({"network": "VGG11-W32", "layer": f"conv{number}"} for number in (4, 6, 7)),
    "layers/overlap": ({"data": "mnist", "network": "LeNet5"}, {"data": "cifar10", "size": None}),
    "layers/rank-one": ({"data": "digits", "epochs": 100}, {"data": "fashion_mnist"}),
    "layers/spectra": ({"data": "mnist", "network": "LeNet5"},),
    "layers/training": ({"data": "digits"}, {"data": "cifar10", "size": None}),
}


def study_of(picture: Path) -> str:
    """The name of the study that a file of the folder of pictures is of.

    >>> study_of(Path("fcn-rank-vs-width.svg"))
    'fcn/rank-vs-width'
    """
    return picture.stem.replace("-", "/", 1)


def is_of_a_study(picture: Path) -> bool:
    return (RESEARCH / "results" / f"{picture.stem}.json").exists()


def shown_records(name: str) -> Collection:
    """What the picture of a study is drawn from."""
    found = collection_from_results(find(name), RESEARCH / "results", SHOWN_DATA.get(name))
    hidden = NOT_SHOWN.get(name, ())
    rows = tuple(row for row in found.stored.rows if not any(matches(row, fields) for fields in hidden))
    return replace(found, stored=replace(found.stored, rows=rows))


def draw(picture: Path) -> None:
    write_study_figure(shown_records(study_of(picture)), picture)


def main(names: list[str]) -> None:
    for picture in sorted(PICTURES.iterdir()):
        if is_of_a_study(picture) and (not names or study_of(picture) in names):
            draw(picture)
            print(picture.name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
