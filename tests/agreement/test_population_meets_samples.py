"""The population Hessian in closed form against the exact Hessian on Gaussian samples, within its standard error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.networks import PolynomialActivation
from hessmap.theory.teacher_student import TeacherStudent, Weights

_NUM_BATCHES, _NUM_SAMPLES = 16, 1500


class _NormalErf(nn.Module):
    """erf(t / sqrt 2), the error function of the teacher-student setting."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.erf(inputs / 2**0.5)


_MODULES: dict[Any, Any] = {
    "identity": nn.Identity,
    "erf": _NormalErf,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    (0, 1, 0.5): lambda: PolynomialActivation(hm.networks.Polynomial((0, 1, 0.5))),
    (0, 1, 0.5, -0.25): lambda: PolynomialActivation(hm.networks.Polynomial((0, 1, 0.5, -0.25))),
}
_SMOOTH = [name for name in _MODULES if name not in ("relu", "leaky_relu")]


def _model(weights: Weights, activation: Any) -> nn.Module:
    """The network of these weights; for two layers as for more."""
    layers: list[nn.Module] = []
    for matrix, bias in zip(weights.layers, weights.biases, strict=True):
        layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=bias is not None, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(matrix))
            if bias is not None:
                layer.bias.copy_(torch.from_numpy(bias))
        layers += [layer, _MODULES[activation]()]
    return nn.Sequential(*layers[:-1])


def _sampled(weights: Weights, teacher: Weights, activation: Any, operators: Any) -> list[np.ndarray]:
    """For each operator its dense Hessians on independent batches, (batches, parameters, parameters)."""
    student, target = _model(weights, activation), _model(teacher, activation)
    generator = torch.Generator().manual_seed(11)
    found: list[list[np.ndarray]] = [[] for _ in operators]
    for _ in range(_NUM_BATCHES):
        inputs = torch.randn(_NUM_SAMPLES, weights.widths[0], generator=generator, dtype=torch.float64)
        problem = hm.Problem(student, "squared", inputs, target(inputs).detach())
        for place, operator in zip(found, operators, strict=True):
            place.append(operator(problem).to_dense().numpy())
    return [np.stack(batches) for batches in found]


def _deviations(batches: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How many standard errors of the mean of the batches the expectation is away, entry by entry."""
    error = batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
    difference = batches.mean(axis=0) - expected
    is_exact = error < 1e-12
    assert np.abs(difference[is_exact]).max(initial=0) < 1e-12
    return difference[~is_exact] / error[~is_exact]


def _agrees(batches: np.ndarray, expected: np.ndarray) -> bool:
    """Student's t with 15 degrees of freedom over some hundred entries, many of them correlated: all below 6."""
    deviations = _deviations(batches, expected)
    return bool(np.abs(deviations).max() < 6)


@pytest.mark.parametrize("activation", _MODULES, ids=str)
def test_hessian_at_the_teacher_is_that_of_many_samples(activation: Any) -> None:
    network = TeacherStudent(3, 3, activation, 2, hidden_bias=True, output_bias=True)
    weights = network.draw(4)
    (batches,) = _sampled(weights, weights, activation, [hm.loss_hessian])
    assert _agrees(batches, network.population_hessian(weights))


@pytest.mark.parametrize(
    ("activation", "has_bias"), [*((activation, True) for activation in _SMOOTH), ("erf", False), ((0, 1, 0.5), False)]
)
def test_both_parts_away_from_the_teacher_are_those_of_many_samples(activation: Any, has_bias: bool) -> None:
    network = TeacherStudent(3, 3, activation, 1, has_bias, has_bias)
    weights, teacher = network.draw(4), TeacherStudent(3, 2, activation, 1, has_bias, has_bias).draw(5)
    outer_product, functional = _sampled(
        weights, teacher, activation, [hm.outer_product_hessian, hm.functional_hessian]
    )
    assert _agrees(outer_product, network.outer_product_hessian(weights))
    assert _agrees(functional, network.functional_hessian(weights, teacher))


def test_deep_linear_hessian_away_from_the_teacher_is_that_of_many_samples() -> None:
    network = TeacherStudent(3, (3, 2), outputs=2, hidden_bias=True, output_bias=True)
    weights, teacher = network.draw(4), network.draw(5)
    (batches,) = _sampled(weights, teacher, "identity", [hm.loss_hessian])
    assert _agrees(batches, network.population_hessian(weights, teacher))


def test_samples_of_a_relu_network_miss_the_curvature_of_its_kinks() -> None:
    """The Hessian of the expected loss is not the expectation of Hessians: relu'' is a delta that no sample meets."""
    network = TeacherStudent(3, 3, "relu")
    weights, teacher = network.draw(4), network.draw(5)
    (functional,) = _sampled(weights, teacher, "relu", [hm.functional_hessian])
    expected = network.functional_hessian(weights, teacher)
    assert (functional[:, :9, :9] == 0).all()
    assert np.abs(expected[:9, :9]).max() > 0.05
    assert _agrees(functional[:, :9, 9:], expected[:9, 9:])


def test_the_comparison_bites() -> None:
    network = TeacherStudent(3, 3, "erf")
    weights = network.draw(4)
    (batches,) = _sampled(weights, weights, "erf", [hm.loss_hessian])
    assert not _agrees(batches, 1.03 * network.population_hessian(weights))
