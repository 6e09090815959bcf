"""Minima of regularised ReLU networks: the objective, its least gradient at kinks, and what L-BFGS gains on descent."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hessmap.datasets import Data
from hessmap.networks import FullyConnected
from hessmap_research.studies.function.quasi_newton import KroneckerPreconditioner, descend, minimise
from hessmap_research.studies.function.relu_objective import ReluObjective, balanced, least_gradient_norm

RIDGE = 0.01


def network(*widths: int) -> nn.Sequential:
    return FullyConnected(widths, bias=True, activation="relu").build(seed=0, init="kaiming")


def samples(count: int, inputs: int, outputs: int) -> Data:
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn(count, inputs, generator=generator, dtype=torch.float64)
    return Data(drawn, drawn[:, :outputs].abs() + 0.1 * drawn.flip(1)[:, :outputs])


def test_the_objective_and_its_gradient_are_those_of_the_model() -> None:
    model, data = network(4, 7, 6, 2), samples(30, 4, 2)
    objective = ReluObjective(model, data, RIDGE)
    parameters = list(model.parameters())
    expected = (model(data.inputs) - data.targets).square().sum(1).mean()
    expected = expected + RIDGE * torch.stack([part.square().sum() for part in parameters]).sum()
    value, gradient = objective(objective.vector(model))
    assert value == pytest.approx(expected.item(), rel=1e-12)
    parts = torch.autograd.grad(expected, parameters)
    joined = [
        torch.cat([weight, bias[:, None]], 1).flatten() for weight, bias in zip(parts[::2], parts[1::2], strict=True)
    ]
    torch.testing.assert_close(gradient, torch.cat(joined), rtol=1e-10, atol=1e-12)


def test_balancing_keeps_the_function_and_lowers_the_norm() -> None:
    model, data = network(4, 7, 6, 2), samples(30, 4, 2)
    with torch.no_grad():
        model[0].weight[3] = 0.0  # a unit without effect
        model[0].bias[3] = 0.0
    objective = ReluObjective(model, data, RIDGE)
    before, outputs = objective.vector(model), model(data.inputs)
    after = balanced(objective, before)
    objective.write_to(model, after)
    torch.testing.assert_close(model(data.inputs), outputs)
    assert after.norm() < before.norm()
    first, second = objective.matrices(after)[:2]
    torch.testing.assert_close(first.norm(dim=1), second[:, :-1].norm(dim=0))
    assert not second[:, 3].any()


def kinked_network() -> tuple[nn.Sequential, Data]:
    """One unit, whose sum is zero at the first of two samples: stationary if ReLU has the slope 1/2 there.

    With r_1, r_2 the residuals and v the outer weight, the derivatives in the inner weight and bias at (1, -1) are
    r_1 v s + 2 r_2 v + 2 ridge and r_1 v s + r_2 v - 2 ridge: zero for r_2 v = -4 ridge and r_1 v s = 6 ridge. Those in
    v and the outer bias c vanish for v = 2^(1/2) and c = -2 v.
    """
    outer = 2**0.5
    residuals = [12 * RIDGE / outer, -4 * RIDGE / outer]
    model = network(1, 1, 1)
    with torch.no_grad():
        for part, value in zip(model.parameters(), (1.0, -1.0, outer, -2 * outer), strict=True):
            part.fill_(value)
    targets = [-2 * outer - residuals[0], outer - 2 * outer - residuals[1]]
    return model, Data(*(torch.tensor(column, dtype=torch.float64)[:, None] for column in ([1.0, 2.0], targets)))


def test_a_kink_is_stationary_although_the_gradient_does_not_vanish() -> None:
    model, data = kinked_network()
    objective = ReluObjective(model, data, RIDGE)
    point = objective.vector(model)
    assert objective(point)[1].norm() > 5 * RIDGE
    assert least_gradient_norm(objective, point) < 1e-6 * RIDGE


def test_away_from_kinks_and_from_minima_free_slopes_change_nothing() -> None:
    model, data = network(4, 7, 6, 2), samples(30, 4, 2)
    objective = ReluObjective(model, data, RIDGE)
    point = objective.vector(model)
    assert least_gradient_norm(objective, point, share=0.0) == pytest.approx(objective(point)[1].norm().item())
    assert least_gradient_norm(objective, point) > 0.9 * objective(point)[1].norm()
    moved, data = kinked_network()
    objective = ReluObjective(moved, data, 4 * RIDGE)  # the same kink, where no slope balances the penalty
    assert least_gradient_norm(objective, objective.vector(moved)) > RIDGE


def test_the_preconditioner_of_a_linear_layer_is_near_its_inverse_hessian() -> None:
    model, data = network(4, 3), samples(2000, 4, 3)
    objective = ReluObjective(model, data, RIDGE)
    point = objective.vector(model)
    gradient = objective(point)[1]

    def distance(step: Tensor) -> float:
        return objective(point - step)[1].norm().item() / gradient.norm().item()

    assert distance(KroneckerPreconditioner(objective, point, seed=0)(gradient)) < 0.1


def test_it_ends_lower_and_nearer_to_a_minimum_than_as_many_steps_of_descent() -> None:
    data, steps = samples(60, 5, 3), 1000
    model, other = network(5, 16, 16, 16, 3), network(5, 16, 16, 16, 3)
    objective = ReluObjective(model, data, RIDGE)
    start = objective(objective.vector(model))[0]
    optimiser = torch.optim.Adam(other.parameters(), lr=2e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        (other(data.inputs) - data.targets).square().sum(1).mean().backward()
        for part in other.parameters():
            part.grad += 2 * RIDGE * part.detach()
        optimiser.step()
    found = minimise(model, data, RIDGE, num_steps=steps, gradient_norm=1e-3)
    value, gradient = objective(objective.vector(model))
    assert (found.objective, found.gradient_norm) == pytest.approx((value, gradient.norm().item()))
    descent = objective.vector(other)
    assert found.objective < objective(descent)[0] < start
    assert found.least_gradient_norm < 0.5 * least_gradient_norm(objective, descent)
    assert found.least_gradient_norm < 0.02


def test_no_step_goes_up() -> None:
    model, data = network(5, 16, 16, 3), samples(60, 5, 3)
    objective = ReluObjective(model, data, RIDGE)
    values = [objective(descend(objective, objective.vector(model), num_steps=count))[0] for count in (0, 1, 3, 10, 30)]
    assert values == sorted(values, reverse=True)
