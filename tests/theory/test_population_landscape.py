"""Population loss, gradient and Hessian away from the teacher."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from teacher_oracles import central_differences

from example_shares import share_of_examples
from hessmap.theory.teacher_student import TeacherStudent, Weights

_CLOSED = ["identity", (0, 1, 0.5), (0.3, -1, 0.5, 0.2), "erf", "relu", "leaky_relu"]
_BY_QUADRATURE = ["tanh", "gelu", "elu"]
_ACTIVATIONS = [*_CLOSED, *_BY_QUADRATURE]
_BIASES = [(False, False), (True, False), (False, True), (True, True)]


def _pair(activation: Any, hidden_bias: bool, output_bias: bool) -> tuple[TeacherStudent, Weights, Weights]:
    """A student of four units and a teacher of two; of two units and a teacher of one where it takes quadrature."""
    width = 1 if activation in _BY_QUADRATURE else 2
    student = TeacherStudent(3, 2 * width, activation, width, hidden_bias, output_bias)
    teacher = TeacherStudent(3, width, activation, width, hidden_bias, output_bias)
    return student, student.draw(1), teacher.draw(2)


@pytest.mark.parametrize(("hidden_bias", "output_bias"), _BIASES)
@pytest.mark.parametrize("activation", _ACTIVATIONS, ids=str)
def test_gradient_and_hessian_are_the_derivatives_of_the_loss(
    activation: Any, hidden_bias: bool, output_bias: bool
) -> None:
    student, weights, teacher = _pair(activation, hidden_bias, output_bias)

    def loss(points: np.ndarray) -> np.ndarray:
        return student.population_loss(student.from_vector(points), teacher)

    def gradient(points: np.ndarray) -> np.ndarray:
        return student.population_gradient(student.from_vector(points), teacher)

    at = weights.vector
    assert np.abs(central_differences(loss, at) - student.population_gradient(weights, teacher)).max() < 2e-9
    assert np.abs(central_differences(gradient, at) - student.population_hessian(weights, teacher)).max() < 2e-9


@pytest.mark.parametrize("hidden_bias", [False, True])
def test_gradient_and_hessian_of_deep_linear_networks_are_the_derivatives_of_the_loss(hidden_bias: bool) -> None:
    student = TeacherStudent(3, (4, 2), outputs=2, hidden_bias=hidden_bias, output_bias=True)
    teacher = TeacherStudent(3, (2, 5, 3), outputs=2, hidden_bias=True).draw(2)
    weights = student.draw(1)

    def gradient(points: np.ndarray) -> np.ndarray:
        return student.population_gradient(student.from_vector(points), teacher)

    slopes = central_differences(lambda p: student.population_loss(student.from_vector(p), teacher), weights.vector)
    assert np.abs(slopes - gradient(weights.vector)).max() < 1e-9
    hessian = student.population_hessian(weights, teacher)
    assert np.abs(central_differences(gradient, weights.vector) - hessian).max() < 1e-9


@pytest.mark.parametrize("activation", _ACTIVATIONS, ids=str)
def test_hessian_is_the_sum_of_outer_product_and_functional_part(activation: Any) -> None:
    student, weights, teacher = _pair(activation, True, True)
    outer_product, functional = student.outer_product_hessian(weights), student.functional_hessian(weights, teacher)
    assert np.abs(outer_product + functional - student.population_hessian(weights, teacher)).max() < 1e-14
    assert np.linalg.eigvalsh(outer_product)[0] > -1e-12
    assert np.linalg.eigvalsh(functional)[0] < -1e-3  # zero blocks W2 W2 and a non-zero W1 W2: indefinite


@pytest.mark.parametrize("activation", _ACTIVATIONS, ids=str)
def test_loss_gradient_and_functional_part_vanish_at_the_teacher(activation: Any) -> None:
    student, weights, _ = _pair(activation, True, True)
    assert abs(student.population_loss(weights, weights)) < 1e-15
    assert np.abs(student.population_gradient(weights, weights)).max() < 1e-15
    assert np.abs(student.functional_hessian(weights, weights)).max() < 1e-15
    assert (student.population_hessian(weights) == student.outer_product_hessian(weights)).all()


@share_of_examples(0.25)
@given(st.lists(st.fractions(-2, 2, max_denominator=3), min_size=18, max_size=18))
def test_polynomial_student_of_a_polynomial_teacher_is_exact(values: list[Fraction]) -> None:
    """A quadratic function along a line: three losses give slope and curvature as fractions."""
    student = TeacherStudent(2, 2, (0, 1, Fraction(1, 2)), hidden_bias=True, output_bias=True)
    start, move = np.array(values[:9], dtype=object), np.array(values[9:], dtype=object)
    teacher = student.from_vector(np.array([Fraction(n % 5 - 2, 3) for n in range(9)], dtype=object))

    def loss(step: int) -> Fraction:
        return student.population_loss(student.from_vector(start + Fraction(step, 4) * move), teacher)

    # The loss is a polynomial of degree 6 in the step: seven values determine it, differences give its derivatives.
    steps = list(range(-3, 4))
    slope = sum(weight * loss(step) for step, weight in zip(steps, _weights(1), strict=True)) * 4
    curvature = sum(weight * loss(step) for step, weight in zip(steps, _weights(2), strict=True)) * 16
    weights = student.from_vector(start)
    assert slope == move @ student.population_gradient(weights, teacher)
    assert curvature == move @ student.population_hessian(weights, teacher) @ move


def _weights(order: int) -> list[Fraction]:
    """Central differences on seven points, exact for degree 6."""
    tables = {1: [-1, 9, -45, 0, 45, -9, 1], 2: [2, -27, 270, -490, 270, -27, 2]}
    return [Fraction(value, {1: 60, 2: 180}[order]) for value in tables[order]]


@pytest.mark.parametrize("activation", ["erf", "relu", (0, 1, 1)], ids=str)
def test_batch_of_students_is_each_of_them(activation: Any) -> None:
    student, weights, teacher = _pair(activation, True, True)
    points = weights.vector + 0.1 * np.random.default_rng(0).normal(size=(2, 3, student.num_parameters))
    losses = student.population_loss(student.from_vector(points), teacher)
    gradients = student.population_gradient(student.from_vector(points), teacher)
    assert losses.shape == (2, 3)
    for place in np.ndindex(2, 3):
        one = student.from_vector(points[place])
        assert losses[place] == pytest.approx(student.population_loss(one, teacher), rel=1e-13)
        assert gradients[place] == pytest.approx(student.population_gradient(one, teacher), abs=1e-13)


def test_vector_and_weights_are_one() -> None:
    student = TeacherStudent(3, (4, 2), outputs=2, hidden_bias=True, output_bias=True)
    weights = student.draw(0)
    again = student.from_vector(weights.vector)
    assert all((a == b).all() for a, b in zip(again.arrays, weights.arrays, strict=True))
    assert [array.shape for array in weights.arrays] == [(4, 3), (4,), (2, 4), (2,), (2, 2), (2,)]


def test_linear_student_away_from_a_linear_teacher_has_a_saddle_at_zero() -> None:
    student = TeacherStudent(3, 2)
    teacher = student.draw(0)
    hessian = student.population_hessian(student.from_vector(np.zeros(8)), teacher)
    product = (teacher.layers[1] @ teacher.layers[0]).ravel()
    eigenvalues = np.linalg.eigvalsh(hessian)
    expected = np.linalg.norm(product) * np.array([-1, -1, 0, 0, 0, 0, 1, 1])
    assert eigenvalues == pytest.approx(expected, abs=1e-14)
