"""What the tests of certificates share: a fit that takes a second, and networks trained in less."""

from __future__ import annotations

import copy

from torch import nn

from hessmap.datasets import Data
from hessmap.networks import FullyConnected
from hessmap.training import train

QUICK = {
    "iterations": 60,
    "num_draws": 2_000,
    "batch_size": 32,
    "deviation_learning_rate": 0.1,
    "refresh_every": 20,
    "basis_samples": 50,
}


def trained(data: Data, widths: tuple[int, ...], epochs: int = 10, seed: int = 0) -> tuple[nn.Module, nn.Module]:
    initial = FullyConnected(widths, bias=True, activation="relu").build(seed=seed)
    model = copy.deepcopy(initial)
    train(model, data, epochs=epochs, learning_rate=0.1, record_every=epochs)
    return model, initial
