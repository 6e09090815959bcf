"""Jacot 2023, Remark 3, for linear networks: cross-entropy without a penalty ends at the representation cost.

Descent on the logarithm of the summed e^(-margin), the limit of the cross-entropy once all samples are right. Nothing
of hessmap trains here, and the largest margin comes from a quadratic programme.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from hessmap.theory.functions.costs import linear_representation_cost

Matrix = NDArray[np.float64]
NUM_STEPS = 5_000


def separable_samples(seed: int) -> tuple[Matrix, Matrix]:
    """Twelve points on two sides of a plane, none of them near it."""
    draws = np.random.default_rng(seed)
    points, normal = draws.normal(size=(12, 4)), draws.normal(size=4)
    labels = np.sign(points @ normal)
    return points + 0.3 * labels[:, None] * normal / np.linalg.norm(normal), labels


def random_layers(num_layers: int, seed: int) -> list[Matrix]:
    draws = np.random.default_rng(seed + 100)
    widths = [4, *[5] * (num_layers - 1), 1]
    return [draws.normal(size=(after, before)) * 0.7 / before**0.5 for before, after in pairwise(widths)]


def product(layers: Sequence[Matrix], size: int) -> Matrix:
    """Of layers in the order in which inputs meet them."""
    return reduce(lambda done, layer: layer @ done, layers, np.eye(size))


def step(layers: list[Matrix], points: Matrix, labels: Matrix) -> list[Matrix]:
    margins = labels * (points @ product(layers, 4)[0])
    shares = np.exp(margins.min() - margins)
    slope = -(shares * labels / shares.sum()) @ points
    rate = 0.02 / (1.0 + squared_norm(layers) ** ((len(layers) - 2) / 2))
    moved = []
    for place, layer in enumerate(layers):
        behind = product(layers[place + 1 :], layer.shape[0])
        before = product(layers[:place], 4)
        moved.append(layer - rate * behind.T @ slope[None, :] @ before.T)
    return moved


def squared_norm(layers: Sequence[Matrix]) -> float:
    return float(sum((layer**2).sum() for layer in layers))


def excess(layers: Sequence[Matrix]) -> float:
    """The squared norm of the weights over what their map costs, minus 1."""
    return squared_norm(layers) / linear_representation_cost(product(layers, 4), len(layers)) - 1.0


def largest_margin(points: Matrix, labels: Matrix) -> float:
    bound = {"type": "ineq", "fun": lambda w: labels * (points @ w) - 1.0, "jac": lambda w: labels[:, None] * points}
    found = minimize(lambda w: w @ w / 2, np.full(4, 0.1), jac=lambda w: w, constraints=[bound], method="SLSQP")
    return 1.0 / float(np.linalg.norm(found.x))


@pytest.mark.parametrize("num_layers", [2, 3, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_weights_without_penalty_end_at_the_cost_of_their_map(num_layers: int, seed: int) -> None:
    points, labels = separable_samples(seed)
    layers = random_layers(num_layers, seed)
    assert excess(layers) > 0.2
    for _ in range(NUM_STEPS):
        layers = step(layers, points, labels)
    assert excess(layers) < 1e-2
    map_ = product(layers, 4)[0]
    margin = float((labels * (points @ map_)).min() / np.linalg.norm(map_))
    assert 0.96 < margin / largest_margin(points, labels) < 1.0 + 1e-9
