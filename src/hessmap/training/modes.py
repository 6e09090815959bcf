"""Mode and memory format of a model, random state and number of threads: changed temporarily, then restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from hessmap.errors import require


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
    """Set a model to evaluation mode, and restore the mode of every submodule afterwards.

    Args:
        model: The model to set.

    Yields:
        Nothing.

    Example:
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


@contextmanager
def channels_last(model: nn.Module) -> Iterator[None]:
    """Images with their channels side by side inside: weights of float32 convolutions decide it for all that follows.

    A step of VGG11-W32 takes half as long, mostly because max-pooling of planes is slow; sums are rounded otherwise.
    The tensors that held the weights hold the trained ones after.

    >>> model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU())
    >>> with channels_last(model):
    ...     model(torch.ones(1, 2, 8, 8)).stride()
    (144, 1, 24, 4)
    >>> model[0].weight.is_contiguous()
    True
    """
    weights = [layer.weight for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    held = {weight: weight.data for weight in weights if weight.dtype == torch.float32}
    for weight, values in held.items():
        weight.data = torch.empty_like(values, memory_format=torch.channels_last).copy_(values)
    try:
        yield
    finally:
        for weight, values in held.items():
            weight.data = values.copy_(weight.data)


_SMALL_WORK = 2**24  # multiplications of a step, about 3 ms on one core: a rule of thumb, not a tuned value


@contextmanager
def threads(num_threads: int | None, num_multiplications: int) -> Iterator[None]:
    """Run with the given number of threads, None choosing by the work of a step; restore the old number after.

    >>> before = torch.get_num_threads()
    >>> with threads(None, num_multiplications=1000):
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    before = torch.get_num_threads()
    chosen = num_threads if num_threads is not None else 1 if num_multiplications < _SMALL_WORK else before
    require(chosen >= 1, "num_threads must be at least 1", f"got {num_threads}")
    torch.set_num_threads(chosen)
    try:
        yield
    finally:
        torch.set_num_threads(before)
