"""Activations that are no polynomials: the rank of derivatives at many points, with its gap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import erf, ndtr

from hessmap.theory.polynomial import independent_rank

Function = Callable[[np.ndarray], np.ndarray]
SLOPES: dict[str, tuple[Function, Function]] = {
    "erf": (lambda t: erf(t / np.sqrt(2)), lambda t: np.sqrt(2 / np.pi) * np.exp(-t * t / 2)),
    "tanh": (np.tanh, lambda t: 1 / np.cosh(t) ** 2),
    "gelu": (lambda t: t * ndtr(t), lambda t: ndtr(t) + t * np.exp(-t * t / 2) / np.sqrt(2 * np.pi)),
    "elu": (lambda t: np.where(t > 0, t, np.expm1(np.minimum(t, 0))), lambda t: np.exp(np.minimum(t, 0))),
    "relu": (lambda t: np.maximum(t, 0), lambda t: (t > 0).astype(float)),
    "leaky_relu": (lambda t: np.where(t > 0, t, 0.01 * t), lambda t: np.where(t > 0, 1.0, 0.01)),
}


def singular_values(activation: str, inputs: int, hidden: int, in_hidden: bool, in_output: bool) -> np.ndarray:
    """Of the matrix of derivatives at 4,000 points, columns of norm one."""
    generator = np.random.default_rng(inputs * 100 + hidden)
    weights, points = 1.5 * generator.normal(size=(hidden, inputs)), 2 * generator.normal(size=(4000, inputs))
    biases = generator.normal(size=hidden) if in_hidden else np.zeros(hidden)
    value, slope = SLOPES[activation]
    sums = points @ weights.T + biases
    columns = [value(sums), *(slope(sums) * points[:, [place]] for place in range(inputs))]
    columns += [slope(sums)] if in_hidden else []
    columns += [np.ones((4000, 1))] if in_output else []
    matrix = np.concatenate(columns, axis=1)
    return np.linalg.svd(matrix / np.linalg.norm(matrix, axis=0), compute_uv=False)


@pytest.mark.parametrize("activation", SLOPES)
@pytest.mark.parametrize(("in_hidden", "in_output"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("inputs", "hidden"), [(2, 1), (2, 3), (3, 3), (4, 2)])
def test_the_derivatives_have_the_predicted_rank(
    activation: str, in_hidden: bool, in_output: bool, inputs: int, hidden: int
) -> None:
    rank = independent_rank(inputs, hidden, activation, in_hidden, in_output).value
    values = singular_values(activation, inputs, hidden, in_hidden, in_output)
    assert values[rank - 1] > 1e-6 * values[0]
    assert values[rank:].max(initial=0.0) < 1e-13 * values[0]
