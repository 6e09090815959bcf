"""The two networks that the dense benchmarks share, in torch and in jax, with standard-normal data."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from hessmap.networks import FullyConnected
from hessmap.problem.problem import Problem

SIZES = (((64, 30, 20, 10), 300), ((49, 50, 40, 30, 10), 200))


def problem(widths: tuple[int, ...], num_samples: int, activation: str) -> Problem:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_samples, widths[0], generator=generator, dtype=torch.float64)
    targets = torch.randn(num_samples, widths[-1], generator=generator, dtype=torch.float64)
    return Problem(FullyConnected(widths, activation=activation).build(seed=0), "squared", inputs, targets)


def torch_risk(made: Problem) -> Callable[[torch.Tensor], torch.Tensor]:
    """The risk as a function of the flat parameters, written out as a user would."""

    def risk(flat: torch.Tensor) -> torch.Tensor:
        outputs = torch.func.functional_call(made.model, made.unflatten(flat), (made.inputs,))
        return 0.5 * (outputs - made.targets).square().sum() / len(made.inputs)

    return risk


def jax_risk(made: Problem, widths: tuple[int, ...], activation: str) -> tuple[Callable[[Any], Any], Any]:
    """The same risk in jax (float64), and the flat parameters."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    inputs, targets = jnp.asarray(made.inputs.numpy()), jnp.asarray(made.targets.numpy())
    apply = jnp.tanh if activation == "tanh" else lambda values: values

    def risk(flat: Any) -> Any:
        values, start = inputs, 0
        for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
            weight = flat[start : start + fan_in * fan_out].reshape(fan_out, fan_in)
            start += fan_in * fan_out
            values = values @ weight.T
            values = apply(values) if layer < len(widths) - 2 else values
        return 0.5 * jnp.sum((values - targets) ** 2) / len(inputs)

    return risk, jnp.asarray(made.parameters.numpy())
