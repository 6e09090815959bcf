"""A small network that is trained by a plain loop, for the tests of tracks."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3))


def samples(count: int = 40) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 6, generator=generator)
    return inputs, (inputs[:, :3] + 0.1 * torch.randn(count, 3, generator=generator)).argmax(1)


def train(model: nn.Module, steps: int = 1) -> None:
    inputs, labels = samples()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
