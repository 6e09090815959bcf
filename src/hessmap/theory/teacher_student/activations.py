"""The activations of teacher and student, and which Gaussian moments each has: in closed form or by quadrature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hessmap.errors import InvalidInput, require, sentence, unknown_name
from hessmap.networks.activations import Polynomial
from hessmap.theory.teacher_student.error_function import ErrorFunction
from hessmap.theory.teacher_student.functions import ActivationFunction, by_name
from hessmap.theory.teacher_student.gaussian_moments import GaussianMoments
from hessmap.theory.teacher_student.polynomial_moments import PolynomialMoments
from hessmap.theory.teacher_student.quadrature import Quadrature
from hessmap.theory.teacher_student.rectifier import Rectifier
from hessmap.theory.teacher_student.weights import as_array

Coefficients = tuple[Any, ...]
Activation = str | Coefficients | ActivationFunction
NAMES = ("identity", "erf", "relu", "leaky_relu", "tanh", "elu", "gelu")


def activation_of(given: Any) -> Activation:
    """A name, the ascending coefficients of a polynomial without zeros of highest order, or a function of the user.

    >>> activation_of((0, 1, 0.5, 0))
    (0.0, 1.0, 0.5)
    >>> activation_of((0, 1))
    'identity'
    """
    if isinstance(given, ActivationFunction) or (isinstance(given, str) and given in NAMES):
        return given
    if isinstance(given, str) and given.strip().startswith("polynomial"):
        given = Polynomial.parse(given)
    if isinstance(given, str):
        raise unknown_name("activation", given, (*NAMES, "polynomial(...)"))
    values = given.coefficients if isinstance(given, Polynomial) else given
    if not isinstance(values, Sequence):
        must = "activation must be a name, a Polynomial, its ascending coefficients or an ActivationFunction"
        raise InvalidInput(sentence(must, f"got {given!r}"))
    return _polynomial_coefficients(values)


def _polynomial_coefficients(values: Sequence[Any]) -> Activation:
    coefficients = as_array(values, "the coefficients of a polynomial activation").tolist()
    while coefficients and coefficients[-1] == 0:
        coefficients.pop()
    must = "a polynomial activation must have degree at least 1"
    remedy = "Give for example (0, 1, 0.5) for t + t^2/2"
    require(len(coefficients) >= 2, must, f"the coefficients (ascending) are {tuple(values)}", remedy)
    return "identity" if coefficients == [0, 1] else tuple(coefficients)


def is_exact(activation: Activation) -> bool:
    """Whether rational weights give rational results; float coefficients count as the fractions they are."""
    return activation == "identity" or isinstance(activation, tuple)


def moments_of(activation: Activation) -> GaussianMoments:
    """The Gaussian moments of an activation and its derivatives."""
    if isinstance(activation, ActivationFunction):
        return Quadrature(activation)
    if isinstance(activation, tuple):
        return PolynomialMoments(activation)
    closed: dict[str, GaussianMoments] = {
        "identity": PolynomialMoments((0, 1)),
        "erf": ErrorFunction(),
        "relu": Rectifier(0.0),
        "leaky_relu": Rectifier(0.01),
    }
    return closed[activation] if activation in closed else Quadrature(by_name(activation))
