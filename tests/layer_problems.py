"""A small classifier whose layers are measured, by tests of layers and of what is made of them."""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

from cases import chain
from hessmap.problem.problem import Problem


def network(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return chain(9, 8, 7, 4, activation=nn.ReLU).double()


@cache
def problem(num_samples: int = 80, seed: int = 0, dead: bool = False) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    model = network(seed)
    inputs = torch.rand(num_samples, 9, generator=generator, dtype=torch.float64)
    if dead:  # a pixel that is always zero, one that repeats another, and a unit that never fires
        inputs[:, 3] = 0.0
        inputs[:, 5] = inputs[:, 6]
        with torch.no_grad():
            model[0].bias[2] = -100.0
    labels = torch.arange(num_samples) % 4
    return Problem(model, "cross_entropy", inputs, labels)
