"""The stored numeric cases of layer Hessians, and the two small networks that most of them speak of."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from golden_tables import table
from hessmap.problem.problem import Problem

BY_NAME: dict[str, dict[str, Any]] = {case["id"]: case for case in table("layers")["cases"]}


def stored(name: str) -> dict[str, Any]:
    """The values of a case, as arrays and numbers."""
    return {
        key: np.array(value) if isinstance(value, list) else value for key, value in BY_NAME[name]["values"].items()
    }


def tolerance(name: str) -> float:
    return float(BY_NAME[name]["tol"])


@cache
def small_network() -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray, np.ndarray]:
    """Weights, biases, inputs and labels of the 5-4-4-3 ReLU network, drawn as the cases say."""
    rng = np.random.default_rng(1)
    dims = [5, 4, 4, 3]
    weights, biases = [], []
    for fan_in, fan_out in pairwise(dims):
        weights.append(rng.standard_normal((fan_out, fan_in)) / np.sqrt(fan_in))
        biases.append(0.1 * rng.standard_normal(fan_out))
    inputs = np.abs(rng.standard_normal((6, 5)))
    return weights, biases, inputs, np.array([0, 1, 2, 0, 1, 2])


def small_problem(num_samples: int = 6) -> Problem:
    weights, biases, inputs, labels = small_network()
    layers: list[nn.Module] = []
    for weight, bias in zip(weights, biases, strict=True):
        linear = nn.Linear(weight.shape[1], weight.shape[0]).double()
        linear.weight.data = torch.from_numpy(weight)
        linear.bias.data = torch.from_numpy(bias)
        layers += [linear, nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    return Problem(
        model, "cross_entropy", torch.from_numpy(inputs[:num_samples]), torch.from_numpy(labels[:num_samples])
    )


def convolutional_problem() -> Problem:
    """One 2x5x5 sample, a 3x3 convolution to three channels, ReLU, four logits."""
    rng = np.random.default_rng(3)
    sample = np.abs(rng.standard_normal((2, 5, 5)))
    kernel, bias = rng.standard_normal((3, 2, 3, 3)) / np.sqrt(18), 0.1 * rng.standard_normal(3)
    last = rng.standard_normal((4, 27)) / np.sqrt(27)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 4, bias=False)).double()
    model[0].weight.data, model[0].bias.data = torch.from_numpy(kernel), torch.from_numpy(bias)
    model[3].weight.data = torch.from_numpy(last)
    return Problem(model, "cross_entropy", torch.from_numpy(sample[None]), torch.tensor([1]))
