"""The population Hessian at the teacher against ways that share nothing with it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erf, ndtr
from teacher_oracles import polynomial_hessian, sampled_jacobian, tensor_hessian

from counted_work import num_lines
from example_shares import share_of_examples
from hessmap.theory.teacher_student import ActivationFunction, TeacherStudent
from hessmap.theory.teacher_student import two_layers as closed_forms

_SMALL = st.fractions(min_value=-3, max_value=3, max_denominator=4)


@st.composite
def _rational_settings(draw: Any) -> tuple[TeacherStudent, Any, list[Fraction]]:
    """A small network with a polynomial of degree 1 to 4, with and without biases, and rational weights."""
    degree = draw(st.integers(1, 4))
    lower = draw(st.lists(_SMALL, min_size=degree, max_size=degree))
    coefficients = [*lower, draw(_SMALL.filter(bool))]
    shape = {"inputs": draw(st.integers(1, 2)), "hidden": draw(st.integers(1, 2)), "outputs": draw(st.integers(1, 2))}
    student = TeacherStudent(
        **shape, activation=coefficients, hidden_bias=draw(st.booleans()), output_bias=draw(st.booleans())
    )
    values = [draw(_SMALL) for _ in range(student.num_parameters)]
    return student, student.from_vector(np.array(values, dtype=object)), coefficients


@given(_rational_settings())
def test_polynomial_hessian_equals_the_network_written_out_as_rationals(
    case: tuple[TeacherStudent, Any, list[Fraction]],
) -> None:
    student, weights, coefficients = case
    assert (student.population_hessian(weights) == polynomial_hessian(weights, coefficients)).all()


@share_of_examples(0.5)
@given(_rational_settings())
def test_float_weights_give_the_rational_hessian_to_rounding(
    case: tuple[TeacherStudent, Any, list[Fraction]],
) -> None:
    student, weights, _ = case
    exact = student.population_hessian(weights).astype(float)
    found = student.population_hessian(weights.in_floats())
    assert found.dtype == float
    assert np.abs(found - exact).max() <= 1e-12 * (1 + np.abs(exact).max())


def _normal(t: np.ndarray) -> np.ndarray:
    return np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi)


_FUNCTIONS = {
    "erf": (lambda t: erf(t / np.sqrt(2)), lambda t: 2 * _normal(t)),
    "tanh": (np.tanh, lambda t: 1 - np.tanh(t) ** 2),
    "gelu": (lambda t: t * ndtr(t), lambda t: ndtr(t) + t * _normal(t)),
    "relu": (lambda t: np.maximum(t, 0), lambda t: (t > 0) * 1.0),
    "leaky_relu": (lambda t: np.where(t > 0, t, t / 100), lambda t: np.where(t > 0, 1.0, 0.01)),
    "elu": (lambda t: np.where(t > 0, t, np.expm1(np.minimum(t, 0))), lambda t: np.exp(np.minimum(t, 0))),
}
_BIASES = [(False, False), (True, False), (False, True), (True, True)]


@pytest.mark.parametrize(("hidden_bias", "output_bias"), _BIASES)
@pytest.mark.parametrize(
    ("activation", "deviation", "tolerance"), [("erf", 1, 1e-12), ("gelu", 1, 1e-12), ("tanh", 0.5, 1e-11)]
)
def test_smooth_hessian_equals_quadrature_in_all_inputs(
    activation: str, deviation: float, tolerance: float, hidden_bias: bool, output_bias: bool
) -> None:
    student = TeacherStudent(2, 3, activation, 2, hidden_bias, output_bias)
    weights = student.draw(7, deviation)
    expected = tensor_hessian(weights, _FUNCTIONS[activation], num_nodes=120)
    assert np.abs(student.population_hessian(weights) - expected).max() < tolerance


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
def test_rectifier_hessian_equals_integration_over_angles(activation: str) -> None:
    """Without bias the Jacobian is homogeneous: E over the plane is a mean over angles, piecewise smooth."""
    student = TeacherStudent(2, 3, activation)
    weights = student.draw(1)
    kinks = np.arctan2(weights.layers[0][:, 1], weights.layers[0][:, 0])[:, None] + np.pi / 2 * np.array([-1, 1])
    edges = np.sort(np.append(np.mod(kinks.ravel(), 2 * np.pi), [0, 2 * np.pi]))
    points, masses = np.polynomial.legendre.leggauss(30)
    half = np.diff(edges)[:, None] / 2
    angles, mass = (edges[:-1, None] + half * (1 + points)).ravel(), (half * masses).ravel() / (2 * np.pi)
    jacobian = sampled_jacobian(weights, _FUNCTIONS[activation], np.stack([np.cos(angles), np.sin(angles)], axis=1))
    expected = 2 * np.einsum("s,soa,sob->ab", mass, jacobian, jacobian)  # E r^2 = 2
    assert np.abs(student.population_hessian(weights) - expected).max() < 1e-13


@pytest.mark.parametrize("hidden_bias", [False, True])
def test_rectifier_closed_form_equals_quadrature_between_kinks(hidden_bias: bool) -> None:
    value, slope = _FUNCTIONS["relu"]
    by_quadrature = ActivationFunction("ramp", value, slope, lambda t: 0 * t, kinks=(0.0,))
    closed = TeacherStudent(3, 4, "relu", 2, hidden_bias)
    weights = closed.draw(2)
    found = TeacherStudent(3, 4, by_quadrature, 2, hidden_bias).population_hessian(weights)
    assert np.abs(closed.population_hessian(weights) - found).max() < 1e-9


@pytest.mark.parametrize("hidden_bias", [False, True])
def test_function_with_kinks_equals_quadrature_in_all_inputs_slowly(hidden_bias: bool) -> None:
    student = TeacherStudent(2, 2, "elu", hidden_bias=hidden_bias)
    weights = student.draw(5)
    coarse, fine = (tensor_hessian(weights, _FUNCTIONS["elu"], num_nodes) for num_nodes in (60, 240))
    found = student.population_hessian(weights)
    assert np.abs(found - fine).max() < np.abs(found - coarse).max() < 1e-3
    assert np.abs(found - fine).max() < 1e-4


def test_equations_of_the_paper_and_moments_are_one() -> None:
    student = TeacherStudent(4, 3, "erf")
    weights = student.draw(0)
    rows, outer = weights.layers
    assert np.abs(student.population_hessian(weights) - closed_forms.error_function_hessian(rows, outer)).max() < 1e-15
    quadratic = TeacherStudent(4, 3, (0, 1, 0.3))
    equations = closed_forms.quadratic_hessian(rows, outer, 0.3)
    assert np.abs(quadratic.population_hessian(weights) - equations).max() < 1e-14


@pytest.mark.parametrize("activation", ["erf", "relu", "tanh", (0, 1, 0.5)])
def test_equal_and_opposite_rows_need_no_care(activation: Any) -> None:
    student = TeacherStudent(3, 4, activation, hidden_bias=True)
    drawn = student.draw(0)
    rows, offsets = drawn.layers[0].copy(), drawn.biases[0].copy()
    rows[1], rows[2], rows[3] = rows[0], -rows[0], 3 * rows[0]
    offsets[1], offsets[2], offsets[3] = offsets[0], -offsets[0], 3 * offsets[0]
    weights = student.weights(rows, drawn.layers[1], hidden_bias=offsets)
    hessian = student.population_hessian(weights)
    moved = student.weights(rows + 1e-6 * drawn.layers[0][::-1], drawn.layers[1], hidden_bias=offsets)
    assert np.abs(hessian - student.population_hessian(moved)).max() < 2e-5
    assert np.linalg.eigvalsh(hessian)[0] > -1e-12


def test_deep_linear_network_has_the_two_layer_hessian_when_its_last_layer_is_the_identity() -> None:
    two, three = TeacherStudent(3, 2, outputs=2, hidden_bias=True), TeacherStudent(3, (2, 2), outputs=2)
    weights = two.draw(0)
    rows, outer = weights.layers
    plain = TeacherStudent(3, 2, outputs=2).population_hessian(rows, outer)
    deep = three.population_hessian(rows, outer, np.eye(2))
    assert np.abs(deep[: len(plain), : len(plain)] - plain).max() < 1e-15


def test_spectrum_of_a_deep_linear_network_is_that_of_the_sum_of_kronecker_products() -> None:
    student = TeacherStudent(3, (4, 5), outputs=2)
    first, second, third = student.draw(1).layers
    after, before = (third @ second, third, np.eye(2)), (np.eye(3), first, second @ first)
    total = sum(np.kron(a @ a.T, b.T @ b) for a, b in zip(after, before, strict=True))
    found = np.linalg.eigvalsh(student.population_hessian(first, second, third))
    assert found[-6:] == pytest.approx(np.linalg.eigvalsh(total), abs=1e-12)
    assert np.abs(found[:-6]).max() < 1e-13


def test_quadrature_agrees_with_closed_form_for_a_function_of_the_user() -> None:
    value, slope = _FUNCTIONS["erf"]
    given_by_user = ActivationFunction("my erf", value, slope, lambda t: -2 * t * _normal(t))
    closed, found = (TeacherStudent(4, 5, activation, 2, True, True) for activation in ("erf", given_by_user))
    weights, teacher = closed.draw(0), closed.draw(1)
    difference = closed.population_hessian(weights, teacher) - found.population_hessian(weights, teacher)
    assert np.abs(difference).max() < 1e-13


def test_error_function_hessian_takes_as_many_lines_for_2550_parameters_as_for_72() -> None:
    """What grows with the network is done by numpy."""
    small, large = TeacherStudent(8, 8, "erf"), TeacherStudent(50, 50, "erf")
    assert large.population_hessian(large.draw(0)).shape == (2550, 2550)
    few = num_lines(lambda: small.population_hessian(small.draw(0)))
    assert 0 < num_lines(lambda: large.population_hessian(large.draw(0))) < 2 * few
