"""Losses near the optimum: stored values, matrix exponentials, steps, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

from golden_tables import each
from hessmap.errors import InvalidInput
from hessmap.theory.teacher_student import TeacherStudent
from hessmap_research.formulas.quadratic_dynamics import QuadraticDynamics
from teacher_golden import teacher_golden

ACTIVATIONS: dict[str, Any] = {"erf": "erf", "quad": (0, 1, 0.5), "lin": "identity"}


@each(teacher_golden("eq7_"))
def test_stored_mean_losses_come_out(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    network = TeacherStudent(inputs["Ni"], inputs["Nh"], ACTIVATIONS[inputs["kind"]])
    hessian = network.population_hessian(np.array(inputs["W1"]), np.array(inputs["W2"]))
    time = inputs["t"] if "t" in inputs else float(case["id"].rsplit("t", 1)[1])
    assert float(QuadraticDynamics.of(hessian).mean_loss(time)) == pytest.approx(
        case["expected"]["value"], abs=case["tol"]
    )


def example() -> tuple[np.ndarray, QuadraticDynamics]:
    network = TeacherStudent(3, 2, "relu")
    hessian = network.population_hessian(network.draw(2))
    return hessian, QuadraticDynamics.of(hessian)


def test_mean_and_single_losses_are_those_of_the_matrix_exponential() -> None:
    hessian, dynamics = example()
    perturbations = np.random.default_rng(1).normal(size=(5, len(hessian)))
    for time in (0.0, 0.7, 5.0):
        decayed = expm(-2 * hessian * time) @ hessian
        assert float(dynamics.mean_loss(time, deviation=0.1)) == pytest.approx(0.01 * np.trace(decayed) / 2, rel=1e-10)
        exact = np.einsum("ni,ij,nj->n", perturbations, decayed, perturbations) / 2
        np.testing.assert_allclose(dynamics.losses(perturbations, [time])[:, 0], exact, rtol=1e-9)


def test_losses_after_steps_are_those_of_gradient_descent() -> None:
    hessian, dynamics = example()
    delta = np.random.default_rng(3).normal(size=len(hessian))
    moved = delta.copy()
    for _ in range(7):
        moved = moved - 0.3 * hessian @ moved
    assert dynamics.losses_after_steps(delta[None], [7], 0.3)[0, 0] == pytest.approx(moved @ hessian @ moved / 2)


def test_zeros_with_rounding_are_left_out_and_the_exponent_is_twice_the_smallest_other() -> None:
    network = TeacherStudent(4, 6)
    dynamics = QuadraticDynamics.of(network.population_hessian(network.draw(0)))
    assert len(dynamics.eigenvalues) == 4
    assert dynamics.exponent == pytest.approx(2 * dynamics.eigenvalues.min())
    late = dynamics.mean_loss([30.0, 31.0])
    assert np.log(late[0] / late[1]) == pytest.approx(dynamics.exponent, rel=1e-6)


def test_what_is_no_hessian_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"must be a square matrix; it has shape \(2, 3\)"):
        QuadraticDynamics.of(np.ones((2, 3)))
    with pytest.raises(InvalidInput, match="must have a positive eigenvalue; it has none"):
        QuadraticDynamics.of(np.zeros((2, 2)))
