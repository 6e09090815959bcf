"""The tasks of Dziugaite & Roy 2017 by their names, with a network trained on each and the weights it started from.

"T-600": hidden layers of 600 units with ReLU, trained on true labels, 0-4 against 5-9; "T-300^2": two layers of 300;
"R-600": on random labels; "T-600_10": on all ten classes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from hessmap.certificates import NormalStart, Task, split_digits
from hessmap.errors import InvalidInput, sentence

if TYPE_CHECKING:
    from hessmap.datasets import Data

_SEED_OF_LABELS = 0
_SPLITS: tuple[Literal["train"], Literal["test"]] = ("train", "test")
# Epochs, and the standard deviation of the first weights; of the digits there are few, and they want more passes.
_EPOCHS = {"digits": 100}
_DEVIATIONS = {"digits": 0.1}
_RANDOM_LABEL_EPOCHS = 120


def task(name: str, data: str, seed: int = 0) -> Task:
    """The task of that name on a data set, its network trained or taken from the cache."""
    from hessmap_research.studies.trained_networks import trained_network

    match = re.fullmatch(r"([TR])-(\d+)(?:\^(\d+))?(_10)?", name)
    if match is None:
        raise InvalidInput(sentence("a task has a name as T-600, R-600, T-300^2 or T-600_10", f"got {name!r}"))
    labels, width, depth, ten = match.groups()
    samples, test = _samples(data, is_random=labels == "R", is_binary=ten is None)
    widths = (samples.inputs.shape[1], *[int(width)] * int(depth or 1), 10 if ten else 2)
    start = NormalStart(widths, _DEVIATIONS.get(data, 0.04))
    epochs = _RANDOM_LABEL_EPOCHS if labels == "R" else _EPOCHS.get(data, 10)
    options: dict[str, Any] = {"batch_size": 100, "learning_rate": 0.01, "momentum": 0.9, "record_every": epochs}
    model, _ = trained_network(start, samples, seed=seed, epochs=epochs, **options)
    return Task(model, start.build(seed=seed), samples, test)


def _samples(name: str, is_random: bool, is_binary: bool) -> tuple[Data, Data]:
    from hessmap.datasets import by_name, random_labels, two_halves

    parts = list(split_digits()) if name == "digits" else [_single(by_name(name, split=part)) for part in _SPLITS]
    if is_binary:
        parts = [two_halves(part) for part in parts]
    if is_random:
        parts = [random_labels(part, 2 if is_binary else 10, seed=_SEED_OF_LABELS) for part in parts]
    return parts[0], parts[1]


def _single(data: Data) -> Data:
    """In [0, 1] as they are, in single precision, in which posteriors are fitted: a fit needs fewer iterations than for
    centred inputs."""
    return type(data)(data.inputs.float(), data.targets)
