"""The embedded example: a small network on the digits, 0-4 against 5-9, and the weights its training started from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import nn

    from hessmap.datasets import Data

_NUM_TRAINING_SAMPLES = 1500
_SEED_OF_SPLIT = 0
# Inputs are (pixel - centre) / spread, in round numbers: statistics of the samples would make the prior depend on them.
_CENTRE, _SPREAD = 0.3, 0.4


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


def digits_example(seed: int = 0) -> Task:
    """A network of 20 hidden units, trained in a few seconds."""
    from hessmap.datasets import two_halves
    from hessmap.training import train

    samples, test = map(two_halves, split_digits())
    start = NormalStart((64, 20, 2), deviation=0.1)
    model = start.build(seed=seed)
    train(model, samples, epochs=100, batch_size=100, learning_rate=0.01, record_every=100, seed=seed)
    return Task(model, start.build(seed=seed), samples, test)


def split_digits() -> tuple[Data, Data]:
    """Training and test samples with all ten labels, in single precision, in which posteriors are fitted."""
    from hessmap.datasets import by_name, subsample

    shuffled = subsample(by_name("digits"), None, seed=_SEED_OF_SPLIT)
    scaled = type(shuffled)(((shuffled.inputs - _CENTRE) / _SPREAD).float(), shuffled.targets)
    first, last = slice(None, _NUM_TRAINING_SAMPLES), slice(_NUM_TRAINING_SAMPLES, None)
    return type(scaled)(*(part[first] for part in scaled)), type(scaled)(*(part[last] for part in scaled))
