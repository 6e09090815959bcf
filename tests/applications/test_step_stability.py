"""Instability sets in at the stated threshold: torch's own optimisers, run on quadratics with P frozen."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from step_problems import flat, half_squares, quadratic, report
from torch import nn, optim

FROZEN = 1 - 1e-12  # of an average that stays as it is set


def frozen_adam(kind: Any, **options: Any) -> Any:
    """Adam whose second moments are random and stay so: with 1e14 steps behind it, bias corrections are 1."""

    def make(groups: Any, scale: float) -> optim.Optimizer:
        made = kind(scaled(groups, scale), betas=(0.9, FROZEN), eps=1e-6, **options)
        generator = torch.Generator().manual_seed(3)
        for parameter in all_parameters(made):
            squares = torch.rand(parameter.shape, generator=generator).double() + 0.1
            state = {"step": torch.tensor(1e14), "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": squares}
            made.state[parameter] = state
        return made  # type: ignore[no-any-return]

    return make


def frozen_rmsprop(groups: Any, scale: float) -> optim.Optimizer:
    made = optim.RMSprop(scaled(groups, scale), alpha=FROZEN, momentum=0.7)
    generator = torch.Generator().manual_seed(3)
    for parameter in all_parameters(made):
        squares = torch.rand(parameter.shape, generator=generator).double() + 0.1
        buffer = torch.zeros_like(parameter)
        made.state[parameter] = {"step": torch.tensor(1.0), "square_avg": squares, "momentum_buffer": buffer}
    return made


def all_parameters(optimizer: optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def scaled(groups: Any, scale: float) -> Any:
    return [{**group, "lr": group["lr"] * scale} for group in groups]


CASES: dict[str, Any] = {
    "descent": lambda groups, scale: optim.SGD(scaled(groups, scale)),
    "momentum": lambda groups, scale: optim.SGD(scaled(groups, scale), momentum=0.9),
    "dampening": lambda groups, scale: optim.SGD(scaled(groups, scale), momentum=0.9, dampening=0.6),
    "nesterov": lambda groups, scale: optim.SGD(scaled(groups, scale), momentum=0.9, nesterov=True),
    "descent with decay": lambda groups, scale: optim.SGD(scaled(groups, scale), weight_decay=0.4),
    "adam": frozen_adam(optim.Adam),
    "adam with decay": frozen_adam(optim.Adam, weight_decay=0.5),
    "adamw": frozen_adam(optim.AdamW, weight_decay=0.05),
    "rmsprop with momentum": frozen_rmsprop,
}


def growth(model: nn.Module, optimizer: optim.Optimizer, x: torch.Tensor, y: torch.Tensor, steps: int) -> float:
    """Largest weight at the end over the largest at the beginning."""
    first = float(flat(model).abs().max())
    for _ in range(steps):
        optimizer.zero_grad()
        half_squares(model(x), y).backward()
        optimizer.step()
        if float(flat(model).abs().max()) > 1e3 * first:
            return 1e3
    return float(flat(model).abs().max()) / first


@pytest.mark.parametrize("groups", ["one group", "two learning rates"])
@pytest.mark.parametrize("name", CASES)
def test_instability_sets_in_within_two_per_cent_of_the_threshold(name: str, groups: str) -> None:
    model, x, _ = quadratic(num_samples=30, size=4)
    y = torch.zeros(len(x), 2).double()

    def optimizer_of(network: nn.Module, scale: float) -> optim.Optimizer:
        parts: list[Any] = [{"params": list(network.parameters()), "lr": 0.1}]
        if groups == "two learning rates":
            weight, bias = network.parameters()
            decay = {"weight_decay": 0.0} if name == "adamw" else {}
            parts = [{"params": [weight], "lr": 0.1}, {"params": [bias], "lr": 0.4, **decay}]
        return CASES[name](parts, scale)  # type: ignore[no-any-return]

    def ratio(scale: float) -> float:
        options = {"quantities": ["preconditioned_sharpness"], "tolerance": 1e-10}
        found = report(model, optimizer_of(model, scale), "squared", x, y, **options).stability_ratio
        assert found is not None
        return found

    scale = 1.0
    for _ in range(4):  # with decoupled decay the ratio is not proportional to the learning rates
        scale /= ratio(scale)
    assert ratio(scale) == pytest.approx(1, abs=1e-3)
    below, above = copy.deepcopy(model), copy.deepcopy(model)
    assert growth(below, optimizer_of(below, 0.98 * scale), x, y, 400) < 1
    assert growth(above, optimizer_of(above, 1.02 * scale), x, y, 400) == 1e3
