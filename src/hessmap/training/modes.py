"""The mode of a model and the random state, changed for a while and given back as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def training_mode(model: nn.Module, seed: int) -> Iterator[None]:
    """Training mode, and random numbers (of dropout) from the seed, inside; both as they were after."""
    random_state = torch.get_rng_state()
    with _modes_kept(model):
        model.train()
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_rng_state(random_state)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; the modes of all parts as they were after.

    >>> model = nn.Sequential(nn.Dropout())
    >>> with evaluation_mode(model):
    ...     model[0].training
    False
    >>> model[0].training
    True
    """
    with _modes_kept(model):
        model.eval()
        yield


@contextmanager
def _modes_kept(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
