"""One hidden layer of ReLUs at critical points, and unit by unit, in exact arithmetic.

Singh, Bachmann & Hofmann 2021, Corollary 10 and Lemmas 25 and 26. At a critical point the rescaling of every unit is
flat, so that H_L of M units with r visible inputs and K outputs has rank M (r + K - 1) at most.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.theory.fully_connected.activations import active_units_upper_bound


def problem_of(first: np.ndarray, second: np.ndarray, inputs: np.ndarray, shifts: np.ndarray) -> hm.Problem:
    """A network with these integer weights whose residuals on the samples are ``shifts``."""
    model = hm.FullyConnected((first.shape[1], len(first), len(second)), activation="relu").build(seed=0)
    weights = [layer.weight for layer in model if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for weight, value in zip(weights, (first, second), strict=True):
            weight.copy_(torch.from_numpy(value.astype(np.float64)))
        given = torch.from_numpy(inputs.astype(np.float64))
        return hm.Problem(model, "squared", given, model(given) - torch.from_numpy(shifts.astype(np.float64)))


def ranks(problem: hm.Problem) -> list[int]:
    return [hm.certified_rank(problem, part).value for part in ("outer_product", "functional", "loss")]


@pytest.mark.parametrize(("num_inputs", "hidden", "outputs"), [(3, 2, 2), (4, 3, 2), (3, 5, 4)])
def test_at_a_fit_the_loss_hessian_is_that_of_the_outer_product(num_inputs: int, hidden: int, outputs: int) -> None:
    generator = np.random.default_rng(num_inputs)
    first, second = (generator.integers(-4, 5, shape) for shape in ((hidden, num_inputs), (outputs, hidden)))
    inputs = generator.integers(-4, 5, (40, num_inputs))
    outer, functional, loss = ranks(problem_of(first, second, inputs, np.zeros((40, outputs))))
    num_active = int(((inputs @ first.T) > 0).any(0).sum())
    assert (functional, loss) == (0, outer)
    assert 0 < loss <= active_units_upper_bound(num_active, num_inputs, outputs)


def test_a_critical_point_whose_residual_does_not_vanish() -> None:
    """One unit along the first input and output; residuals of the second output move with the second input."""
    inputs, shifts = np.array([[1, 1], [1, -1]]), np.array([[0, 1], [0, -1]])
    problem = problem_of(np.array([[1, 0]]), np.array([[1], [0]]), inputs, shifts)
    model = copy.deepcopy(problem.model).requires_grad_(True)
    risk = (model(problem.inputs) - problem.targets).square().sum()
    gradient = torch.autograd.grad(risk, list(model.parameters()))
    assert all(float(part.abs().max()) == 0 for part in gradient)
    outer, functional, loss = ranks(problem)
    assert functional == 2
    assert 0 < loss <= outer == active_units_upper_bound(1, 2, 2)


def test_away_from_critical_points_it_is_no_bound() -> None:
    inputs, shifts = np.array([[1, 1], [1, -1], [2, 1]]), np.array([[1, 1], [0, -1], [1, 2]])
    loss = ranks(problem_of(np.array([[1, 0]]), np.array([[1], [0]]), inputs, shifts))[2]
    assert loss > active_units_upper_bound(1, 2, 2)


@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_the_jacobian_of_one_unit(slope: float) -> None:
    """Lemma 25: its columns are X Lambda (x) w and v X Lambda (x) I; Lemma 26: its rank is r + K - 1."""
    generator = torch.Generator().manual_seed(1)
    inward, outward = (torch.randn(size, generator=generator, dtype=torch.float64) for size in (4, 3))
    inputs = torch.randn(30, 4, generator=generator, dtype=torch.float64)

    def outputs(inward: torch.Tensor, outward: torch.Tensor) -> torch.Tensor:
        return nn.functional.leaky_relu(inputs @ inward, slope)[:, None] * outward

    by_inward, by_outward = torch.func.jacrev(outputs, argnums=(0, 1))(inward, outward)
    derivative = torch.where(inputs @ inward > 0, 1.0, slope)
    weighted = derivative[:, None] * inputs
    torch.testing.assert_close(by_inward, torch.einsum("nd,k->nkd", weighted, outward))
    torch.testing.assert_close(by_outward, torch.einsum("n,kl->nkl", weighted @ inward, torch.eye(3).double()))
    jacobian = torch.cat([by_inward, by_outward], 2).flatten(0, 1)
    values = torch.linalg.svdvals(jacobian)
    assert int((values > 1e-12 * values[0]).sum()) == 4 + 3 - 1


@pytest.mark.parametrize(
    ("num_inputs", "input_rank", "outputs"), [(2, 2, 2), (3, 3, 1), (4, 4, 3), (5, 5, 2), (4, 2, 3), (5, 3, 4)]
)
def test_the_certified_rank_of_one_active_unit(num_inputs: int, input_rank: int, outputs: int) -> None:
    """Lemma 26: H_o of one hidden unit has rank r + K - 1 where the samples on which it is active have rank r."""
    generator = np.random.default_rng(10 * num_inputs + input_rank)
    spanning = generator.integers(-3, 4, (input_rank, num_inputs))
    inputs = generator.integers(-3, 4, (30, input_rank)) @ spanning
    inward, outward = generator.integers(1, 5, (1, num_inputs)), generator.integers(1, 5, (outputs, 1))
    active = inputs[(inputs @ inward.T)[:, 0] > 0]
    assert np.linalg.matrix_rank(active) == np.linalg.matrix_rank(inputs) == input_rank
    outer = ranks(problem_of(inward, outward, inputs, np.ones((30, outputs))))[0]
    assert outer == input_rank + outputs - 1 == active_units_upper_bound(1, input_rank, outputs)
