"""Problems and optimisers for tests of step reports, and references that are written out by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

import hessmap as hm

Optimizer = torch.optim.Optimizer


def quadratic(num_samples: int = 12, size: int = 5, seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
    """A linear model with the squared loss: its risk is quadratic in the weights."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(size, 2, bias=True).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    scales = torch.linspace(0.3, 2.0, size)
    return (
        model,
        torch.randn(num_samples, size, generator=generator).double() * scales,
        torch.randn(num_samples, 2, generator=generator).double(),
    )


def network(seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
    """A small network with cross-entropy."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return model, torch.randn(14, 4, generator=generator).double(), torch.randint(3, (14,), generator=generator)


def flat_risk(model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Any:
    """The mean loss as a function of the flat parameters, by plain torch."""
    shapes = {name: value.shape for name, value in model.named_parameters()}

    def risk(flat: Tensor) -> Tensor:
        parts = torch.split(flat, [shape.numel() for shape in shapes.values()])
        named = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        return loss(functional_call(model, named, (x,)), y)

    return risk


def half_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().sum(1).mean() / 2


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def train(model: nn.Module, optimizer: Optimizer, loss: Any, x: Tensor, y: Tensor, steps: int) -> None:
    """Some steps, so that the optimiser has a state."""
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


def true_step(model: nn.Module, optimizer: Optimizer, loss: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Take the next step for good; the change of the flat parameters, and the gradient before it."""
    before = flat(model)
    optimizer.zero_grad()
    loss(model(x), y).backward()
    gradient = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])  # type: ignore[union-attr]
    optimizer.step()
    return flat(model) - before, gradient


def snapshot(model: nn.Module, optimizer: Optimizer) -> list[Any]:
    """Bytes of everything that a report must leave as it is."""

    def content(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().cpu().numpy().tobytes(), value.dtype, tuple(value.shape), id(value)
        if isinstance(value, dict):
            return [(content(key) if isinstance(key, Tensor) else key, content(item)) for key, item in value.items()]
        if isinstance(value, list | tuple):
            return [content(item) for item in value]
        return value

    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global one is meant
    return [
        content(dict(model.named_parameters())),
        content(dict(model.named_buffers())),
        content([parameter.grad for parameter in model.parameters()]),
        [parameter.requires_grad for parameter in model.parameters()],
        [module.training for module in model.modules()],
        content(dict(optimizer.state)),
        content(optimizer.param_groups),
        python_state,
        [part.tobytes() if isinstance(part, np.ndarray) else part for part in numpy_state],
        torch.get_rng_state().numpy().tobytes(),
    ]


class Interrupted(BaseException):
    """What no code catches by mistake."""


class OperationCount(TorchDispatchMode):
    """Counts operations, and raises an exception at one of them."""

    def __init__(self, at: int | None = None, error: type[BaseException] = Interrupted) -> None:
        super().__init__()
        self.count, self.at, self.error = 0, at, error

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        if self.count == self.at:
            raise self.error("in the middle")
        return func(*args, **(kwargs or {}))


def report(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor, **options: Any) -> hm.records.StepReport:
    return hm.step_report(hm.Problem(model, loss, x, y), optimizer, **options)
