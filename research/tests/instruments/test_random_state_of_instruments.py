"""No instrument of the papers moves a global random state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import hessmap as hm
from hessmap_research.instruments.stationary import train_to_stationary_point
from hessmap_research.instruments.zoo import zoo_network
from hessmap_research.toeplitz import toeplitz_layer
from random_states import states


def data() -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(24, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return inputs, torch.arange(24) % 3


def net(activation: str) -> torch.nn.Module:
    return hm.FullyConnected((4, 5, 3), activation=activation, bias=True).build(seed=0)


def images() -> torch.nn.Module:
    return hm.Convolutional(6, (1, 2), (3,), outputs=2).build(seed=0)


ZOO = ("F-20^2", "F-20-BN", "LeNet5", "LeNet5-BN", "VGG11-W2", "ResNet18-W2")
CASES: dict[str, Callable[[], Any]] = {
    "train_to_stationary_point": lambda: train_to_stationary_point(net("tanh"), data(), max_evaluations=60),
    "zoo_network": lambda: [zoo_network(name, (3, 32, 32)) for name in ZOO],
    "toeplitz_layer": lambda: toeplitz_layer(images()[1], (1, 6)),
}


@pytest.mark.parametrize("name", CASES)
def test_no_instrument_moves_a_random_state(name: str) -> None:
    before = states()
    CASES[name]()
    assert states() == before
