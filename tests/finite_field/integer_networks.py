"""An oracle that shares nothing with the library: networks of small integers, whose Hessians are integers.

torch differentiates them in float64 without rounding as long as every number stays below 2^53, and python-flint knows
the rank of an integer matrix exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import flint
import torch
from torch import Tensor, nn
from torch.func import functional_call, hessian, jacrev

from hessmap.problem.problem import Problem

EXACT_BELOW = 2.0**50


def integer_network(widths: Sequence[int], activation: nn.Module | None, bias: bool, seed: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after, bias=bias, dtype=torch.float64), activation or nn.Identity()]
    return with_integers(nn.Sequential(*layers[:-1]), seed)


def with_integers(model: nn.Module, seed: int, largest: int = 3) -> nn.Module:
    """Every parameter replaced by integers of -largest .. largest."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint(-largest, largest + 1, parameter.shape, generator=generator))
    return model


def integer_data(num_samples: int, input_dim: int, output_dim: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(-3, 4, (num_samples, input_dim), generator=generator)
    targets = torch.randint(-5, 6, (num_samples, output_dim), generator=generator)
    return inputs.double(), targets.double()


def naive_hessians(problem: Problem, weights: Tensor | None = None) -> dict[str, Tensor]:
    """The three Hessians of sum weight * 1/2 (output - target)^2, by automatic differentiation of the whole thing."""
    names = problem.layout.names
    fixed = {name: value for name, value in problem.model.named_parameters() if name not in names}
    weights = torch.ones(problem.num_samples, dtype=torch.float64) if weights is None else weights

    def outputs(flat: Tensor) -> Tensor:
        named = {name: flat[place].reshape(problem.layout.shape(name)) for name, place in problem.layout}
        return functional_call(problem.model, named | fixed, (problem.inputs,))

    def risk(flat: Tensor) -> Tensor:
        return (weights[:, None] * (outputs(flat) - problem.targets) ** 2).sum() / 2

    flat = problem.parameters
    jacobian = jacrev(outputs)(flat)
    whole = hessian(risk)(flat)
    outer = torch.einsum("n,nkp,nkq->pq", weights, jacobian, jacobian)
    return {"loss": whole, "outer_product": outer, "functional": whole - outer}


def integer_rank(matrix: Tensor, scale: int = 1) -> int:
    """The rank of a matrix that is one of integers after multiplication with ``scale``."""
    scaled = matrix * scale
    assert torch.equal(scaled, scaled.round()), "the oracle needs integers"
    assert float(scaled.abs().max()) < EXACT_BELOW, "the oracle needs integers that float64 holds exactly"
    rows = [[int(value) for value in row] for row in scaled.tolist()]
    return int(flint.fmpz_mat(rows).rank())
