"""Ways to the same expectations that share nothing with the closed forms."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from hessmap.theory.teacher_student import Weights


def fractions(values: Any) -> Any:
    """Nested lists of texts such as "1/3" as nested lists of fractions."""
    return [fractions(value) for value in values] if isinstance(values, list) else Fraction(values)


class Poly:
    """Polynomials in the inputs with rational coefficients: a network written out, and its Gaussian expectation."""

    def __init__(self, terms: dict[tuple[int, ...], Fraction]) -> None:
        self.terms = {exponents: value for exponents, value in terms.items() if value}

    def __add__(self, other: Poly) -> Poly:
        total = defaultdict(Fraction, self.terms)
        for exponents, value in other.terms.items():
            total[exponents] += value
        return Poly(total)

    def __mul__(self, other: Any) -> Poly:
        if not isinstance(other, Poly):
            return Poly({exponents: value * other for exponents, value in self.terms.items()})
        total: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
        for (left, a), (right, b) in itertools.product(self.terms.items(), other.terms.items()):
            total[tuple(map(sum, zip(left, right, strict=True)))] += a * b
        return Poly(total)

    def mean(self) -> Fraction:
        """E over standard normal inputs: products of double factorials of even powers."""
        even = {e: value for e, value in self.terms.items() if all(power % 2 == 0 for power in e)}
        return sum((value * prod(_double_factorial(power) for power in e) for e, value in even.items()), Fraction(0))


def _double_factorial(power: int) -> int:
    return prod(range(1, power, 2))


def polynomial_jacobian(weights: Weights, coefficients: list[Any]) -> list[list[Poly]]:
    """The derivatives of every output in every parameter of a two-layer network, as polynomials in the inputs."""
    rows, outer = weights.layers
    one = Poly({(0,) * rows.shape[1]: Fraction(1)})
    inputs = [Poly({tuple(int(q == n) for q in range(rows.shape[1])): Fraction(1)}) for n in range(rows.shape[1])]
    offsets = [Fraction(0)] * len(rows) if weights.biases[0] is None else weights.biases[0]
    units = [sum(map(Poly.__mul__, inputs, row), one * b) for row, b in zip(rows, offsets, strict=True)]
    values = [_evaluated(coefficients, unit, one) for unit in units]
    slopes = [_evaluated([p * c for p, c in enumerate(coefficients)][1:], unit, one) for unit in units]
    jacobian = []
    for output, factors in enumerate(outer):
        row = [slope * x * factor for slope, factor in zip(slopes, factors, strict=True) for x in inputs]
        if weights.biases[0] is not None:
            row += [slope * factor for slope, factor in zip(slopes, factors, strict=True)]
        row += [value * int(o == output) for o in range(len(outer)) for value in values]
        if weights.biases[1] is not None:
            row += [one * int(o == output) for o in range(len(outer))]
        jacobian.append(row)
    return jacobian


def _evaluated(coefficients: list[Any], at: Poly, one: Poly) -> Poly:
    total = one * 0
    for coefficient in reversed(coefficients):
        total = total * at + one * Fraction(coefficient)
    return total


def polynomial_hessian(weights: Weights, coefficients: list[Any]) -> np.ndarray:
    """E[J^T J] by writing the network out."""
    jacobian = polynomial_jacobian(weights, coefficients)
    size = len(jacobian[0])
    entries = [[sum((row[a] * row[b]).mean() for row in jacobian) for b in range(size)] for a in range(size)]
    return np.array(entries, dtype=object)


Functions = tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]


def tensor_hessian(weights: Weights, functions: Functions, num_nodes: int = 60) -> np.ndarray:
    """E[J^T J] by Gauss-Hermite in ALL inputs, the Jacobian written out sample by sample."""
    points, masses = np.polynomial.hermite_e.hermegauss(num_nodes)
    inputs = np.array(list(itertools.product(points, repeat=weights.layers[0].shape[1])))
    mass = np.array([prod(m) for m in itertools.product(masses / masses.sum(), repeat=inputs.shape[1])])
    jacobian = sampled_jacobian(weights, functions, inputs)
    return np.einsum("s,soa,sob->ab", mass, jacobian, jacobian, optimize=True)


def sampled_jacobian(weights: Weights, functions: Functions, inputs: np.ndarray) -> np.ndarray:
    """(samples, outputs, parameters) in the order W1, b1, W2, b2."""
    value, slope = functions
    rows, outer = weights.layers
    units = inputs @ rows.T + (0 if weights.biases[0] is None else weights.biases[0])
    steep = outer[None] * slope(units)[:, None, :]  # (s, o, m)
    parts = [(steep[..., None] * inputs[:, None, None, :]).reshape(len(inputs), len(outer), -1)]
    if weights.biases[0] is not None:
        parts.append(steep)
    eye = np.eye(len(outer))
    parts.append((eye[None, :, :, None] * value(units)[:, None, None, :]).reshape(len(inputs), len(outer), -1))
    if weights.biases[1] is not None:
        parts.append(np.broadcast_to(eye, (len(inputs), *eye.shape)))
    return np.concatenate(parts, axis=-1)


def central_differences(function: Callable[[np.ndarray], np.ndarray], at: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The derivatives of a function that takes a batch of points, one row for each direction."""
    moves = step * np.eye(len(at))
    return (function(at + moves) - function(at - moves)) / (2 * step)
