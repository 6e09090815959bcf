"""The parts of the Hessian at the teacher by degree in the inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import erf
from teacher_oracles import sampled_jacobian

from hessmap.errors import InvalidInput
from hessmap.theory.teacher_student import TeacherStudent


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("activation", ["erf", "relu", "tanh", (0, 1, 0.5), (1, 1, 1, 1)], ids=str)
def test_parts_of_degree_zero_and_one_leave_a_positive_rest(activation: Any, has_bias: bool) -> None:
    network = TeacherStudent(3, 2, activation, 2, has_bias, has_bias)
    weights = network.draw(0)
    rest = network.population_hessian(weights)
    norm = np.linalg.norm(rest)
    for degree, num_rows in ((0, 2), (1, 6)):
        jacobian = network.hermite_jacobian(weights, degree)
        assert jacobian.shape == (num_rows, network.num_parameters)
        rest = rest - jacobian.T @ jacobian
        assert np.linalg.eigvalsh(rest)[0] > -1e-13 * norm


def test_parts_are_means_over_all_inputs() -> None:
    network = TeacherStudent(2, 3, "erf", 2, True, True)
    weights = network.draw(1)
    points, masses = np.polynomial.hermite_e.hermegauss(60)
    inputs = np.stack([part.ravel() for part in np.meshgrid(points, points)], axis=1)
    mass = np.outer(masses, masses).ravel() / masses.sum() ** 2
    functions = (lambda t: erf(t / np.sqrt(2)), lambda t: np.sqrt(2 / np.pi) * np.exp(-(t**2) / 2))
    jacobian = sampled_jacobian(weights, functions, inputs)
    mean, linear = np.einsum("s,sop->op", mass, jacobian), np.einsum("s,sq,sop->oqp", mass, inputs, jacobian)
    assert np.abs(network.hermite_jacobian(weights, 0) - mean).max() < 1e-12
    assert np.abs(network.hermite_jacobian(weights, 1) - linear.reshape(4, -1)).max() < 1e-12


@pytest.mark.parametrize("has_bias", [False, True])
def test_linear_network_is_its_parts(has_bias: bool) -> None:
    network = TeacherStudent(3, 2, outputs=2, hidden_bias=has_bias, output_bias=has_bias)
    weights = network.draw(0)
    mean, linear = (network.hermite_jacobian(weights, degree) for degree in (0, 1))
    assert np.abs(mean.T @ mean + linear.T @ linear - network.population_hessian(weights)).max() < 1e-14


def test_parts_are_derivatives_of_moments_of_the_output() -> None:
    """For one unit g(w x) with g = t + t^2: E f = v w^2, E f x = v w."""
    network = TeacherStudent(1, 1, (0, 1, 1))
    assert network.hermite_jacobian(([[3]], [2]), 0).tolist() == [[12, 9]]
    assert network.hermite_jacobian(([[3]], [2]), 1).tolist() == [[2, 3]]


def test_other_degrees_and_depths_are_refused() -> None:
    with pytest.raises(InvalidInput, match="the degree must be 0 or 1; got 2"):
        TeacherStudent(2, 2, "erf").hermite_jacobian((np.eye(2), np.ones(2)), 2)
    with pytest.raises(InvalidInput, match="must be of a network with one hidden layer; it has 2"):
        TeacherStudent(2, (2, 2)).hermite_jacobian(TeacherStudent(2, (2, 2)).draw(0), 1)
