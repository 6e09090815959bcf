"""A student that learns a teacher on standard normal inputs: population loss, gradient and Hessian.

Activations have their Gaussian moments in closed form or by quadrature.

The parts of degree 0 and 1 of the Hessian at the teacher explain why some of its eigenvalues are large.

Expand the Jacobian J(x) of the outputs in Hermite polynomials of the inputs. Parts of different degree are orthogonal:

    H_o = E[J^T J] = J0^T J0 + J1^T J1 + (higher degrees),  J0 = E[J] = d E[f],  J1 = E[J x^T] = d E[f x^T],

every term positive semi-definite. J0 has one row for each output, J1 one for each output and input. By Weyl's
inequalities the k-th eigenvalue of H_o is at least that of a part, and the (1 + rank)-th of H_o is at most the largest
of all others: one eigenvalue away from the rest where a mean E[f] dominates (t + epsilon t^2), as many as inputs where
the linear part does (erf), and not as many as hidden units, as printed in Section 5 of "A Teacher-Student Perspective
on the Dynamics of Learning Near the Optimal Point".

Deep linear networks: with a one appended to the inputs, layer l is M_l = [[W_l, b_l], [0, 1]] and f(x) is M_L ... M_1
(x, 1) without its last entry. E[(x, 1)(x, 1)^T] = I, so that L = 1/2 || P - P_teacher ||^2 for the end-to-end matrices
P (outputs, inputs + 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from hessmap.errors import InvalidInput, checked_count, require, sentence, short_text, unknown_name
from hessmap.networks import Polynomial
from hessmap.theory.teacher_student import two_layers
from hessmap.theory.teacher_student.moments import ErrorFunction, GaussianMoments, PolynomialMoments, Rectifier
from hessmap.theory.teacher_student.quadrature import ActivationFunction, Quadrature, by_name
from hessmap.theory.teacher_student.two_layers import units_of
from hessmap.theory.teacher_student.weights import Array, Weights, as_array, checked_weights

AnyWeights = Weights | Sequence[Any]


@dataclass(frozen=True, init=False)
class TeacherStudent:
    """Networks f(x) = W2 g(W1 x + b1) + b2 on inputs x ~ N(0, I), with the loss L = 1/2 E ||f(x) - f_teacher(x)||^2.

    Attributes:
        inputs: Number of inputs.
        hidden: Number of hidden units, or a tuple of widths for deep linear networks.
        activation: A name, a ``Polynomial``, its coefficients (ascending) or an ``ActivationFunction``.
        outputs: Number of outputs. Defaults to 1.
        hidden_bias: Whether hidden units have a bias.
        output_bias: Whether the output has a bias.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``activation`` is "identity", "erf" (here erf(t / sqrt 2) = 2 Phi(t) - 1, as in the teacher-student literature,
        and not the erf(t) of `hessmap.networks`), "relu", "leaky_relu", "tanh", "elu", "gelu", a `Polynomial`, the
        ascending coefficients of one, such as (0, 1, Fraction(1, 2)), or an `ActivationFunction`. Identity and
        polynomials, erf and the rectifiers are in closed form, with or without bias; the rest is quadrature in the
        plane of two units. Weights that are all integers and fractions give fractions for polynomials, everything else
        is float64. ``hidden`` may be a tuple of widths for deep networks that are linear.

        The student has these widths; a teacher may have another number of hidden units. Weights are `Weights`, or a
        sequence (W1, W2) where there is no bias. Parameters are ordered as in ``FullyConnected.build``: W1 row by row,
        b1, W2 row by row, b2.

    Example:
        >>> student = TeacherStudent(2, 1, activation=(0, 1, 1))
        >>> print(student.population_hessian([[1, 0]], [2]).astype(int))
        [[52  0 14]
         [ 0 20  0]
         [14  0  4]]
    """

    inputs: int
    hidden: tuple[int, ...]
    outputs: int
    activation: Activation
    hidden_bias: bool
    output_bias: bool

    def __init__(
        self,
        inputs: int,
        hidden: int | Sequence[int],
        activation: Any = "identity",
        outputs: int = 1,
        hidden_bias: bool = False,
        output_bias: bool = False,
    ) -> None:
        widths = tuple(hidden) if isinstance(hidden, Sequence) else (hidden,)
        require(len(widths) > 0, "a network must have a hidden layer", "hidden is empty")
        chosen = activation_of(activation)
        for name, flag in {"hidden_bias": hidden_bias, "output_bias": output_bias}.items():
            require(isinstance(flag, bool), f"{name} must be True or False", f"got {short_text(flag)}")
        must = "a network with several hidden layers must be linear here"
        require(len(widths) == 1 or chosen == "identity", must, f"the activation is {chosen}")
        object.__setattr__(self, "inputs", checked_count("inputs", inputs))
        object.__setattr__(self, "hidden", tuple(checked_count("hidden", width) for width in widths))
        object.__setattr__(self, "outputs", checked_count("outputs", outputs))
        object.__setattr__(self, "activation", chosen)
        object.__setattr__(self, "hidden_bias", hidden_bias)
        object.__setattr__(self, "output_bias", output_bias)

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.inputs, *self.hidden, self.outputs)

    @property
    def num_parameters(self) -> int:
        weights = sum(before * after for before, after in pairwise(self.widths))
        return weights + self.hidden_bias * sum(self.hidden) + self.output_bias * self.outputs

    def weights(self, *layers: Any, hidden_bias: Any = None, output_bias: Any = None) -> Weights:
        """The checked weights (W1, W2, ...) of a student; ``hidden_bias`` is a vector, or one for each hidden layer."""
        return checked_weights(layers, self._biases(hidden_bias, output_bias), self.widths, self._has_bias)

    def draw(self, seed: int, deviation: float = 1.0) -> Weights:
        """Normal weights of variance ``deviation``^2 / inputs of the layer; layer by layer, matrix before bias."""
        generator = np.random.default_rng(seed)
        layers, biases = [], []
        for (before, after), has_bias in zip(pairwise(self.widths), self._has_bias, strict=True):
            scale = deviation / np.sqrt(before)
            layers.append(scale * generator.normal(size=(after, before)))
            biases.append(scale * generator.normal(size=after) if has_bias else None)
        return Weights(tuple(layers), tuple(biases))

    def from_vector(self, vector: Any) -> Weights:
        """The weights whose `Weights.vector` this is; leading axes are a batch."""
        values = np.asarray(vector)
        must = f"a vector of parameters must have length {self.num_parameters}"
        require(values.ndim >= 1 and values.shape[-1] == self.num_parameters, must, f"it has shape {values.shape}")
        layers, biases, start = [], [], 0
        for (before, after), has_bias in zip(pairwise(self.widths), self._has_bias, strict=True):
            stop = start + before * after
            layers.append(values[..., start:stop].reshape(*values.shape[:-1], after, before))
            biases.append(values[..., stop : stop + after] if has_bias else None)
            start = stop + has_bias * after
        return Weights(tuple(layers), tuple(biases))

    def population_loss(self, student: AnyWeights, teacher: AnyWeights) -> Any:
        """1/2 E ||f - f_teacher||^2: a number, or one for each network of a batch of students."""
        return self._formulas.loss(*self._pair(student, teacher))

    def population_gradient(self, student: AnyWeights, teacher: AnyWeights) -> Array:
        """The gradient of the population loss in the parameters of the student."""
        return self._formulas.gradient(*self._pair(student, teacher))

    def population_hessian(self, *weights: Any, hidden_bias: Any = None, output_bias: Any = None) -> Array:
        """The Hessian of the population loss.

        ``population_hessian(W1, W2)``, with its biases where it has any, and ``population_hessian(weights)`` are at the
        teacher, where the outer product is all there is; ``population_hessian(student, teacher)`` of two `Weights` is
        anywhere.
        """
        if not any(isinstance(part, Weights) for part in weights):
            given = self.weights(*weights, hidden_bias=hidden_bias, output_bias=output_bias)
            return self.outer_product_hessian(given)
        must = "population_hessian must be given (W1, W2), one Weights or two of them"
        require(len(weights) <= 2, must, f"got {len(weights)} values")
        student, teacher = weights if len(weights) == 2 else (weights[0], None)
        outer_product = self.outer_product_hessian(student)
        return outer_product if teacher is None else outer_product + self.functional_hessian(student, teacher)

    def outer_product_hessian(self, student: AnyWeights) -> Array:
        """H_o = E[J^T J], J the Jacobian of the outputs; it does not depend on the teacher."""
        return self._formulas.outer_product_hessian(self._student(student))

    def functional_hessian(self, student: AnyWeights, teacher: AnyWeights) -> Array:
        """H_f = E[sum_o (f_o - f_teacher_o) d^2 f_o]; zero at the teacher."""
        return self._formulas.functional_hessian(*self._pair(student, teacher))

    def hermite_jacobian(self, weights: AnyWeights, degree: int) -> Array:
        """J0 = E[J] (degree 0) or J1 = E[J x^T] (degree 1) of a two-layer network; H_o - J0^T J0 - J1^T J1 >= 0."""
        must = "the parts of a Hessian by degree must be of a network with one hidden layer"
        require(len(self.hidden) == 1, must, f"it has {len(self.hidden)}")
        return hermite_jacobian(moments_of(self.activation), self._student(weights), degree)

    @property
    def _formulas(self) -> DeepLinear | two_layers.TwoLayers:
        return DeepLinear() if len(self.hidden) > 1 else two_layers.TwoLayers(moments_of(self.activation))

    @property
    def _has_bias(self) -> tuple[bool, ...]:
        return (*[self.hidden_bias] * len(self.hidden), self.output_bias)

    def _biases(self, hidden_bias: Any, output_bias: Any) -> tuple[Any, ...]:
        if len(self.hidden) == 1:
            return (hidden_bias, output_bias)
        hidden = [None] * len(self.hidden) if hidden_bias is None else list(hidden_bias)
        must = f"hidden_bias must contain one vector for each of the {len(self.hidden)} hidden layers"
        require(len(hidden) == len(self.hidden), must, f"got {len(hidden)}")
        return (*hidden, output_bias)

    def _student(self, given: AnyWeights) -> Weights:
        """The weights as given or made, checked against the widths of the student; fractions only where all can be."""
        layers, biases = _parts(given)
        student = checked_weights(layers, biases, self.widths, self._has_bias)
        return student if is_exact(self.activation) else student.in_floats()

    def _pair(self, student: AnyWeights, teacher: AnyWeights) -> tuple[Weights, Weights]:
        """Student and teacher in one arithmetic; the teacher shares inputs, outputs and activation, not the width."""
        layers, biases = _parts(teacher)
        num_hidden = len(layers) - 1 if len(self.hidden) > 1 else 1
        widths = (self.inputs, *[None] * num_hidden, self.outputs)
        checked = checked_weights(layers, biases, widths, [None] * (num_hidden + 1))
        ours = self._student(student)
        return (ours, checked) if ours.is_exact and checked.is_exact else (ours.in_floats(), checked.in_floats())


def _parts(given: AnyWeights) -> tuple[Sequence[Any], Sequence[Any]]:
    if isinstance(given, Weights):
        return given.layers, given.biases
    return given, [None] * len(given)


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


def hermite_jacobian(moments: GaussianMoments, weights: Weights, degree: int) -> Array:
    """J0 (outputs, parameters) or J1 (outputs * inputs, parameters) of a two-layer network."""
    require(degree in (0, 1), "the degree must be 0 or 1", f"got {degree}")
    require(not weights.batch, "a Jacobian must be of one network, not of a batch", "W1 has leading axes")
    return _mean(moments, weights) if degree == 0 else _linear(moments, weights)


def _mean(moments: GaussianMoments, weights: Weights) -> Array:
    """d E[f_o]: W2_om E[g''] W_mn, W2_om E[g'], delta E[g], delta."""
    units, outer = units_of(weights), weights.layers[1]
    value, slope, curvature = (moments.single(order, units) for order in range(3))
    eye = np.eye(len(outer), dtype=int)
    parts = [outer[:, :, None] * (curvature[:, None] * units.rows)[None]]
    if units.offsets is not None:
        parts.append(outer * slope)
    parts.append(eye[:, :, None] * value)
    if weights.biases[1] is not None:
        parts.append(eye * np.ones_like(outer[:1, :1]))
    return np.concatenate([part.reshape(len(outer), -1) for part in parts], axis=1)


def _linear(moments: GaussianMoments, weights: Weights) -> Array:
    """d E[f_o x_q]: W2_om (E[g'] delta_nq + E[g'''] W_mn W_mq), W2_om E[g''] W_mq, delta E[g'] W_kq, 0."""
    units, outer = units_of(weights), weights.layers[1]
    rows = units.rows
    slope, curvature, third = (moments.single(order, units) for order in (1, 2, 3))
    eye = np.eye(rows.shape[1], dtype=int)
    inner = slope[:, None, None] * eye + third[:, None, None] * rows[:, :, None] * rows[:, None, :]  # (m, n, q)
    parts = [outer[:, None, :, None] * inner.transpose(2, 0, 1)[None]]  # (o, q, m, n)
    if units.offsets is not None:
        parts.append(outer[:, None, :] * (curvature[:, None] * rows).T[None])
    outputs = np.eye(len(outer), dtype=int)
    parts.append(outputs[:, None, :, None] * (slope[:, None] * rows).T[None, :, None, :])
    if weights.biases[1] is not None:
        parts.append(0 * outputs[:, None, :] * rows.T[None, :, :1])
    return np.concatenate([part.reshape(len(outer) * rows.shape[1], -1) for part in parts], axis=1)


class DeepLinear:
    """The formulas for linear networks of any depth."""

    def loss(self, student: Weights, teacher: Weights) -> Any:
        difference = _Factors(student).end_to_end - _Factors(teacher).end_to_end
        return np.asarray((difference * difference).sum(axis=(-2, -1)))[()] / 2

    def gradient(self, student: Weights, teacher: Weights) -> Array:
        """A_l^T R B_l^T of every layer, A_l all that follows it, B_l all before, R = P - P_teacher."""
        factors = _Factors(student)
        residual = factors.end_to_end - _Factors(teacher).end_to_end
        parts = []
        for place in range(factors.depth):
            moment = _transposed(factors.after(place)) @ residual @ _transposed(factors.before(place))
            parts.append(factors.parameters(moment, place))
        return np.concatenate(parts, axis=-1)

    def outer_product_hessian(self, student: Weights) -> Array:
        """J^T J with the columns J_(l, i, j) = A_l[:, i] B_l[j, :]."""
        require(not student.batch, "a Hessian must be of one network, not of a batch", "W1 has leading axes")
        factors = _Factors(student)
        columns = []
        for place in range(factors.depth):
            after, before = factors.after(place), factors.before(place)
            products = after[:, None, :, None] * before.T[None, :, None, :]  # (o, x, i, j)
            columns.append(factors.parameters(products.reshape(-1, *products.shape[2:]), place))
        jacobian = np.concatenate(columns, axis=-1)
        return np.asarray(jacobian.T @ jacobian)

    def functional_hessian(self, student: Weights, teacher: Weights) -> Array:
        """Layers k > l: (A_k^T R B_l^T)_ij' (M_(k-1) ... M_(l+1))_ji'; a layer with itself: zero."""
        require(not student.batch, "a Hessian must be of one network, not of a batch", "W1 has leading axes")
        factors = _Factors(student)
        residual = factors.end_to_end - _Factors(teacher).end_to_end
        rows = []
        for later in range(factors.depth):
            row = [self._block(factors, residual, later, earlier) for earlier in range(later)]
            own = factors.num_parameters(later)
            rest = sum(factors.num_parameters(place) for place in range(later, factors.depth))
            rows.append(np.concatenate([*row, np.zeros((own, rest), dtype=int) * residual[:1, :1]], axis=1))
        lower = np.concatenate(rows, axis=0)
        return np.asarray(lower + lower.T)

    def _block(self, factors: _Factors, residual: Array, later: int, earlier: int) -> Array:
        outside = factors.after(later).T @ residual @ factors.before(earlier).T  # (i, j')
        between = factors.between(earlier, later)  # (j, i')
        block = outside[:, None, None, :] * between[None, :, :, None]  # (i, j, i', j')
        inner = factors.parameters(block, earlier)  # (i, j, parameters of the earlier layer)
        return np.swapaxes(factors.parameters(np.moveaxis(inner, -1, 0), later), 0, 1)


@dataclass(frozen=True)
class _Factors:
    """The extended matrices of the layers and their products."""

    weights: Weights

    @property
    def depth(self) -> int:
        return len(self.weights.layers)

    @property
    def end_to_end(self) -> Array:
        return reduce(lambda done, layer: layer @ done, map(self._extended_layer, range(self.depth)))[..., :-1, :]

    def before(self, place: int) -> Array:
        """(inputs of the layer + 1, inputs + 1): the product of all layers before this one."""
        width = self.weights.layers[0].shape[-1] + 1
        return self._product(range(place), width)

    def after(self, place: int) -> Array:
        """(outputs, outputs of the layer + 1): the product of all layers after this one."""
        width = self.weights.layers[place].shape[-2] + 1
        return self._product(range(place + 1, self.depth), width)[..., :-1, :]

    def between(self, earlier: int, later: int) -> Array:
        return self._product(range(earlier + 1, later), self.weights.layers[earlier].shape[-2] + 1)

    def num_parameters(self, place: int) -> int:
        layer, bias = self.weights.layers[place], self.weights.biases[place]
        return int(layer.shape[-1] * layer.shape[-2] + (0 if bias is None else layer.shape[-2]))

    def parameters(self, values: Array, place: int) -> Array:
        """(..., i, j) over the extended matrix of a layer as (..., parameters): weights row by row, then bias."""
        batch = values.shape[:-2]
        weight = values[..., :-1, :-1].reshape(*batch, -1)
        return weight if self.weights.biases[place] is None else np.concatenate([weight, values[..., :-1, -1]], axis=-1)

    def _product(self, places: range, width: int) -> Array:
        start = np.eye(width, dtype=int) * np.ones_like(self.weights.layers[0][..., :1, :1])
        return reduce(lambda done, place: self._extended_layer(place) @ done, places, start)

    def _extended_layer(self, place: int) -> Array:
        layer, bias = self.weights.layers[place], self.weights.biases[place]
        column = 0 * layer[..., :1] if bias is None else bias[..., None]
        last = np.eye(1, layer.shape[-1] + 1, layer.shape[-1], dtype=int) + 0 * layer[..., :1, :1]
        return np.concatenate([np.concatenate([layer, column], axis=-1), last], axis=-2)


def _transposed(matrix: Array) -> Array:
    return np.swapaxes(matrix, -1, -2)
