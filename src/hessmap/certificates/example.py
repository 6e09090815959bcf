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
    """A network, the weights its training started from, and its samples.

    Attributes:
        model: The trained network.
        initial: The network before training.
        data: The training samples.
        test: The test samples.
    """

    model: nn.Module
    initial: nn.Module
    data: Data
    test: Data


@dataclass(frozen=True)
class NormalStart:
    """A ReLU network with biases whose parameters are all initialised from N(0, deviation^2).

    Args:
        widths: Widths of the layers, from the inputs to the outputs.
        deviation: Standard deviation of the initial parameters.
    """

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
    """A network of 20 hidden units, trained in a few seconds to classify digits as 0-4 or 5-9.

    Args:
        seed: Seed of initialisation and training. Defaults to 0.

    Returns:
        Task: The network before and after training, with training and test samples.
    """
    from hessmap.datasets import two_halves
    from hessmap.training import train

    samples, test = map(two_halves, split_digits())
    start = NormalStart((64, 20, 2), deviation=0.1)
    model = start.build(seed=seed)
    train(model, samples, epochs=100, batch_size=100, learning_rate=0.01, record_every=100, seed=seed)
    return Task(model, start.build(seed=seed), samples, test)


def split_digits() -> tuple[Data, Data]:
    """Training and test samples of the digits, with all ten labels.

    Returns:
        The training samples and the test samples, in float32, in which posteriors are fitted.
    """
    from hessmap.datasets import by_name, subsample

    shuffled = subsample(by_name("digits"), None, seed=_SEED_OF_SPLIT)
    scaled = type(shuffled)(((shuffled.inputs - _CENTRE) / _SPREAD).float(), shuffled.targets)
    first, last = slice(None, _NUM_TRAINING_SAMPLES), slice(_NUM_TRAINING_SAMPLES, None)
    return type(scaled)(*(part[first] for part in scaled)), type(scaled)(*(part[last] for part in scaled))
