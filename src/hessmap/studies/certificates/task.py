"""The tasks of Dziugaite & Roy 2017 by their names, with a network trained on each and the weights it started from.

"T-600": hidden layers of 600 units with ReLU, trained on true labels, 0-4 against 5-9; "T-300^2": two layers of 300;
"R-600": on random labels; "T-600_10": on all ten classes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from hessmap.errors import InvalidInput, sentence

if TYPE_CHECKING:
    import torch
    from torch import nn

    from hessmap.datasets import Data

_NUM_TRAIN_DIGITS = 1500
_SEED_OF_SPLIT = 0
# Inputs are (pixel - centre) / spread, round numbers for each set: statistics of the samples themselves would make the
# prior depend on them. The larger sets stay in [0, 1], where a fit needs fewer iterations than centred.
_CENTRE_AND_SPREAD = {"digits": (0.3, 0.4), "mnist": (0.0, 1.0), "fashion_mnist": (0.0, 1.0)}
# Epochs, and the standard deviation of the first weights; of the digits there are few, and they want more passes.
_EPOCHS = {"digits": 100}
_DEVIATIONS = {"digits": 0.1}
_RANDOM_LABEL_EPOCHS = 120


class Task(NamedTuple):
    """A network, the weights it started from, and its samples."""

    model: nn.Module
    initial: nn.Module
    data: Data
    test: Data


@dataclass(frozen=True)
class NormalStart:
    """A ReLU network with biases whose parameters all start as N(0, deviation^2)."""

    widths: tuple[int, ...]
    deviation: float

    def build(self, seed: int = 0, init: str = "gaussian") -> nn.Sequential:
        import torch

        from hessmap.networks import FullyConnected

        network = FullyConnected(self.widths, bias=True, activation="relu").build(seed=seed, dtype=torch.float32)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_(0, self.deviation, generator=generator)
        return network


def task(name: str, data: str, seed: int = 0) -> Task:
    """The task of that name on a data set, its network trained or taken from the cache."""
    from hessmap.studies.trained_networks import trained_network

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


def digits_task(seed: int = 0) -> Task:
    """A network of 20 hidden units on the digits, trained in some seconds."""
    from hessmap.training import train

    samples, test = _samples("digits", is_random=False, is_binary=True)
    start = NormalStart((64, 20, 2), _DEVIATIONS["digits"])
    model = start.build(seed=seed)
    train(model, samples, epochs=_EPOCHS["digits"], batch_size=100, learning_rate=0.01, record_every=100, seed=seed)
    return Task(model, start.build(seed=seed), samples, test)


def _samples(name: str, is_random: bool, is_binary: bool) -> tuple[Data, Data]:
    from hessmap.datasets import by_name, random_labels, subsample, two_halves

    if name == "digits":
        shuffled = subsample(_scale(by_name(name), name), None, seed=_SEED_OF_SPLIT)
        parts = [type(shuffled)(*(part[some] for part in shuffled)) for some in _split()]
    else:
        parts = [_scale(by_name(name, split=split), name) for split in ("train", "test")]
    if is_binary:
        parts = [two_halves(part) for part in parts]
    if is_random:
        parts = [random_labels(part, 2 if is_binary else 10, seed=_SEED_OF_SPLIT) for part in parts]
    return parts[0], parts[1]


def _split() -> tuple[slice, slice]:
    return slice(None, _NUM_TRAIN_DIGITS), slice(_NUM_TRAIN_DIGITS, None)


def _scale(data: Data, name: str) -> Data:
    """The inputs centred and scaled, in single precision, in which posteriors are fitted."""
    centre, spread = _CENTRE_AND_SPREAD[name]
    inputs: torch.Tensor = ((data.inputs - centre) / spread).float()
    return type(data)(inputs, data.targets)
