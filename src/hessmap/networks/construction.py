"""From an architecture to a torch model."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from hessmap.networks.fully_connected import FullyConnected
from hessmap.networks.initialisation import initialise
from hessmap.networks.modules import activation_module


def build_fully_connected(
    net: FullyConnected, seed: int = 0, init: str = "gaussian", dtype: torch.dtype | None = None
) -> nn.Sequential:
    """Layer by layer from one generator; the meta device keeps ``nn.Linear`` off the global random state.

    >>> model = build_fully_connected(FullyConnected((2, 3, 1), activation="relu"))
    >>> model[0].weight.dtype, model[1]
    (torch.float64, ReLU())
    """
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for before, after in pairwise(net.widths):
        linear = nn.Linear(before, after, bias=net.bias, device="meta", dtype=dtype or torch.float64)
        linear.to_empty(device="cpu")
        initialise(linear, init, generator)
        layers += [linear, activation_module(net.activation)]
    return nn.Sequential(*layers[:-1])
