"""What teacher and student refuse, and in which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hessmap.errors import InvalidInput, UnknownName
from hessmap.networks import Polynomial
from hessmap.theory.teacher_student import ActivationFunction, TeacherStudent


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"inputs": 0, "hidden": 2}, "inputs must be an integer of at least 1; got 0"),
        ({"inputs": 2, "hidden": 0}, "hidden must be an integer of at least 1; got 0"),
        ({"inputs": 2, "hidden": ()}, "a network must have a hidden layer; hidden is empty"),
        ({"inputs": 2, "hidden": (3, -1)}, "hidden must be an integer of at least 1; got -1"),
        ({"inputs": 2, "hidden": 2.5}, "hidden must be an integer of at least 1; got 2.5"),
        ({"inputs": 2, "hidden": 2, "outputs": 0}, "outputs must be an integer of at least 1; got 0"),
    ],
)
def test_sizes_below_one_are_refused(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TeacherStudent(**sizes)


@pytest.mark.parametrize("coefficients", [(1,), (3, 0, 0), ()])
def test_polynomial_of_degree_zero_is_refused(coefficients: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="a polynomial activation must have degree at least 1"):
        TeacherStudent(2, 2, coefficients)


def test_unknown_activation_is_answered_with_the_near_ones() -> None:
    with pytest.raises(UnknownName, match="got 'rleu'. Did you mean 'relu'"):
        TeacherStudent(2, 2, "rleu")
    with pytest.raises(InvalidInput, match="activation must be a name, a Polynomial"):
        TeacherStudent(2, 2, 3)


def test_deep_network_must_be_linear() -> None:
    with pytest.raises(InvalidInput, match="several hidden layers must be linear here; the activation is erf"):
        TeacherStudent(2, (2, 2), "erf")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (([[1, 2, 3]], [1, 1]), r"W1 must have shape \(2, 3\); it has shape \(1, 3\)"),
        (([[1, 2], [3, 4]], [1, 1]), r"W1 must have shape \(2, 3\); it has shape \(2, 2\)"),
        ((np.ones((2, 3)), [1, 1, 1]), r"W2 must have shape \(1, 2\); it has shape \(1, 3\)"),
        ((np.ones((2, 3)),), "the network has 2 layers of weights; got 1"),
        ((np.ones((2, 3)), [1, np.inf]), "W2 must be finite"),
        ((np.ones((2, 3)), ["a", "b"]), "W2 must be an array of numbers"),
        (([[1, 2, 3], [1, 2]], [1, 1]), "W1 must be an array of numbers"),
    ],
)
def test_weights_of_wrong_shape_are_refused(weights: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TeacherStudent(3, 2).population_hessian(*weights)


def test_bias_must_be_there_exactly_where_the_network_has_one() -> None:
    rows, outer = np.ones((2, 3)), np.ones(2)
    with pytest.raises(InvalidInput, match="layer 1 has no bias in this network; one is given"):
        TeacherStudent(3, 2).weights(rows, outer, hidden_bias=[1, 1])
    with pytest.raises(InvalidInput, match="layer 2 has a bias in this network; none is given"):
        TeacherStudent(3, 2, output_bias=True).weights(rows, outer)
    with pytest.raises(InvalidInput, match=r"the bias of layer 1 must have length 2; it has shape \(3,\)"):
        TeacherStudent(3, 2, hidden_bias=True).weights(rows, outer, hidden_bias=[1, 1, 1])


def test_biases_can_be_given_with_the_matrices() -> None:
    network = TeacherStudent(2, 2, (0, 1, 1), hidden_bias=True, output_bias=True)
    matrices, biases = ([[1, 2], [3, 4]], [5, 6]), {"hidden_bias": [1, -1], "output_bias": [2]}
    given = network.population_hessian(*matrices, **biases)
    assert (given == network.population_hessian(network.weights(*matrices, **biases))).all()


def test_teacher_of_other_inputs_is_refused() -> None:
    student = TeacherStudent(3, 2)
    with pytest.raises(InvalidInput, match=r"W1 must have shape \(outputs, 3\); it has shape \(5, 4\)"):
        student.population_loss(student.draw(0), TeacherStudent(4, 5).draw(0))


def test_vector_of_wrong_length_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"a vector of parameters must have length 8; it has shape \(7,\)"):
        TeacherStudent(3, 2).from_vector(np.zeros(7))


def test_hessian_of_a_batch_is_refused() -> None:
    student = TeacherStudent(3, 2, "erf")
    with pytest.raises(InvalidInput, match="a Hessian must be of one network, not of a batch"):
        student.population_hessian(student.from_vector(np.zeros((5, 8))))


def _exploding() -> ActivationFunction:
    return ActivationFunction(
        "exp(t^2)",
        lambda t: np.exp(t**2),
        lambda t: 2 * t * np.exp(t**2),
        lambda t: (2 + 4 * t**2) * np.exp(t**2),
    )


def test_activation_without_gaussian_moments_is_refused_for_the_weights_that_make_it_diverge() -> None:
    student = TeacherStudent(2, 2, _exploding())
    message = r"the activation exp\(t\^2\) and its two derivatives must have Gaussian moments; the square of g diverges"
    with pytest.raises(InvalidInput, match=message):
        student.population_hessian(np.eye(2), [1, 1])
    narrow = student.population_hessian(0.2 * np.eye(2), [1, 1])
    assert narrow[4, 4] == pytest.approx(1 / np.sqrt(1 - 4 * 0.04), rel=1e-12)  # E exp(2 t^2), t ~ N(0, 0.04)


@pytest.mark.parametrize(("kinks", "message"), [((0.0,), "must have Gaussian moments"), ((), "must be smooth")])
def test_activation_with_a_pole_is_refused(kinks: tuple[float, ...], message: str) -> None:
    pole = ActivationFunction("1/t", lambda t: 1 / t, lambda t: -1 / t**2, lambda t: 2 / t**3, kinks)
    with pytest.raises(InvalidInput, match=f"the activation 1/t .*{message}"):
        TeacherStudent(2, 2, pole).population_hessian(np.eye(2), [1, 1])


def test_function_too_steep_for_its_units_is_refused() -> None:
    steep = ActivationFunction(
        "cliff",
        lambda t: np.tanh(300 * t),
        lambda t: 300 / np.cosh(np.minimum(300 * np.abs(t), 300)) ** 2,
        lambda t: -180_000 * np.tanh(300 * t) / np.cosh(np.minimum(300 * np.abs(t), 300)) ** 2,
    )
    with pytest.raises(InvalidInput, match="the activation cliff must be smooth on the scale of its units"):
        TeacherStudent(1, 1, steep).population_hessian([[1.0]], [1.0])


def test_rectifier_with_a_zero_row_is_refused() -> None:
    with pytest.raises(InvalidInput, match="every hidden unit must have a weight.*; the row of hidden unit 1 is zero"):
        TeacherStudent(2, 2, "relu").population_hessian([[1.0, 0], [0, 0]], [1.0, 1])


def test_polynomials_are_named_in_three_ways() -> None:
    ways = [(0, 1, 0.5), Polynomial((0, 1, 0.5)), "polynomial(0,1,0.5)"]
    assert len({TeacherStudent(2, 2, way) for way in ways}) == 1
    assert TeacherStudent(2, 2, (0, 1)) == TeacherStudent(2, 2, "identity")
