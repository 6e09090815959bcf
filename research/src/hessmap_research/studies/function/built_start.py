"""Trainings that start from a network that was built: embedded into wider layers, with a little noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from hessmap.theory.functions import Layer

_NOISE = 1e-2


def embedded_network(layers: Sequence[Layer], width: int, *, seed: int, noise: float = _NOISE) -> nn.Sequential:
    """The same function up to the noise, as a network whose hidden layers have ``width`` units.

    Noise of this deviation on every weight lets the units that the built network leaves out take part in training.
    """
    import torch

    from hessmap.networks import FullyConnected

    sizes = (layers[0].weight.shape[1], *[width] * (len(layers) - 1), len(layers[-1].bias))
    model = FullyConnected(sizes, bias=True, activation="relu").build(seed=seed)
    generator = torch.Generator().manual_seed(seed)
    linear = [leaf for leaf in model if isinstance(leaf, torch.nn.Linear)]
    with torch.no_grad():
        for leaf, layer in zip(linear, layers, strict=True):
            leaf.weight.normal_(0.0, noise, generator=generator)
            leaf.bias.zero_()
            rows, columns = layer.weight.shape
            leaf.weight[:rows, :columns] += torch.from_numpy(layer.weight)
            leaf.bias[:rows] += torch.from_numpy(layer.bias)
    return model
