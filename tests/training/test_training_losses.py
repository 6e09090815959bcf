"""Losses by name: the second derivative by autograd, at fitted samples too, where a kink would hide it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.losses import LOSSES
from hessmap.training import per_sample

log_cosh = per_sample("log_cosh")

RESIDUALS = [0.0, -0.0, 1e-300, -1e-12, 1e-3, -0.7, 3.0, -20.0]


def second_derivative(residual: float, dtype: torch.dtype) -> float:
    point = torch.full((1, 1), residual, dtype=dtype)
    return float(torch.autograd.functional.hessian(lambda out: log_cosh(out, torch.zeros_like(out)).sum(), point))


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_curvature_of_log_cosh_is_that_of_its_formula(residual: float, dtype: torch.dtype) -> None:
    sech = 1 / torch.cosh(torch.tensor(residual, dtype=torch.float64))
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert second_derivative(residual, dtype) == pytest.approx(float(sech**2), rel=tolerance)


@pytest.mark.parametrize("residual", [0.0, 1e-3, -2.0, 30.0, -700.0, 1e300])
def test_values_and_slopes_of_log_cosh(residual: float) -> None:
    point = torch.full((1, 1), residual, dtype=torch.float64, requires_grad=True)
    value = log_cosh(point, torch.zeros(1, 1, dtype=torch.float64))
    (slope,) = torch.autograd.grad(value.sum(), point)
    size = abs(residual)
    expected = (
        float(torch.log(torch.cosh(point.detach()))) if size < 100 else size - float(torch.log(torch.tensor(2.0)))
    )
    assert value.item() == pytest.approx(expected, rel=1e-7, abs=1e-15)
    assert float(slope) == pytest.approx(float(torch.tanh(point.detach())), rel=1e-12, abs=1e-16)


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("fitted", ["all samples", "one output", "no sample"])
def test_training_and_curvature_have_the_same_hessian(name: str, fitted: str) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    model = nn.Linear(2, 3).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        targets: Tensor = model(inputs)
    if name == "cross_entropy":
        targets = torch.arange(6) % 3
    elif fitted != "all samples":
        targets[:, 1 if fitted == "one output" else slice(None)] += 0.5
    problem = hm.Problem(model, name, inputs, targets)
    shapes = {name: value.shape for name, value in problem.named.items()}

    def risk(flat: Tensor) -> Tensor:
        parts = torch.split(flat, [shape.numel() for shape in shapes.values()])
        named = {name: part.reshape(shape) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}
        return per_sample(name)(torch.func.functional_call(model, named, (inputs,)), targets).mean()

    expected = torch.autograd.functional.hessian(risk, problem.parameters.detach())
    found = hm.loss_hessian(problem).to_dense()
    assert float((found - expected).abs().max()) <= 1e-12 * float(found.abs().max())
