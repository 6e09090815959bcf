"""Jacot 2023, Remark 3, for ReLU networks: what cross-entropy without a penalty ends at, beside a vanishing penalty.

The cost of a ReLU network has no closed form: it is the smallest squared norm of weights that give every sample a
margin of one. Compared are two descents from one start, with and without penalty. Nothing of hessmap trains here; the
networks of all seeds go side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[np.float64]
NUM_SEEDS, NUM_SAMPLES, WIDTH = 4, 12, 20
FIRST_PENALTY, LAST_PENALTY = 1e-2, 1e-8
TOLERANCES = {2: 0.07, 3: 0.03, 4: 0.03}  # of the ratio of the two costs: neither descent is at its end


def samples() -> tuple[Array, Array]:
    """For each seed twelve points in four dimensions, the sign of x_1 x_2, and a constant input as bias."""
    draws = [np.random.default_rng(seed).normal(size=(NUM_SAMPLES, 4)) for seed in range(NUM_SEEDS)]
    points = np.stack(draws)
    constant = np.ones((NUM_SEEDS, NUM_SAMPLES, 1))
    return np.concatenate([points, constant], axis=2), np.sign(points[:, :, 0] * points[:, :, 1])


def random_layers(num_layers: int) -> list[Array]:
    widths = [5, *[WIDTH] * (num_layers - 1), 1]
    draws = [np.random.default_rng(seed + 100) for seed in range(NUM_SEEDS)]
    return [
        np.stack([draw.normal(size=(after, before)) for draw in draws]) * (0.98 / before) ** 0.5
        for before, after in pairwise(widths)
    ]


def margins(layers: list[Array], points: Array, labels: Array) -> tuple[Array, list[Array]]:
    """The margin of every sample, and what enters each layer."""
    entering = [points]
    for layer in layers[:-1]:
        entering.append(np.maximum(entering[-1] @ layer.transpose(0, 2, 1), 0.0))
    outputs = entering[-1] @ layers[-1].transpose(0, 2, 1)
    return labels * outputs[:, :, 0], entering


def gradients(layers: list[Array], entering: list[Array], slopes: Array) -> list[Array]:
    """Of a loss with these slopes in the outputs."""
    found, behind = list[Array](), slopes[:, :, None]
    for place in reversed(range(len(layers))):
        found.insert(0, behind.transpose(0, 2, 1) @ entering[place])
        if place:
            behind = (behind @ layers[place]) * (entering[place] > 0)
    return found


def squared_norm(layers: list[Array]) -> Array:
    return np.asarray(sum((layer**2).sum(axis=(1, 2)) for layer in layers))


def cost(layers: list[Array], points: Array, labels: Array) -> Array:
    """The squared norm of the weights once they are scaled to a smallest margin of one."""
    smallest = margins(layers, points, labels)[0].min(axis=1)
    assert (smallest > 0).all()
    return np.asarray(squared_norm(layers) / smallest ** (2 / len(layers)))


def descend(
    layers: list[Array], num_steps: int, slopes_and_penalty: Callable[[Array, int], tuple[Array, Array]]
) -> Array:
    """Train the layers in place; returns their costs soon after all samples of all seeds are right."""
    points, labels = samples()
    early = np.full(NUM_SEEDS, np.inf)
    for step in range(num_steps):
        if step % 100 == 0 and np.isinf(early).all() and (margins(layers, points, labels)[0] > 0).all():
            early = cost(layers, points, labels)
        found, entering = margins(layers, points, labels)
        slopes, penalty = slopes_and_penalty(found, step)
        size = 1.0 + squared_norm(layers) ** ((len(layers) - 2) / 2)
        rate = (0.02 * (1.0 - step / num_steps) / size)[:, None, None]
        for layer, gradient in zip(layers, gradients(layers, entering, labels * slopes), strict=True):
            layer -= rate * (gradient + 2.0 * penalty[:, None, None] * layer)
    return early


def without_penalty(found: Array, step: int) -> tuple[Array, Array]:
    """Of the logarithm of the summed e^(-margin), the limit of the cross-entropy once all samples are right."""
    shares = np.exp(found.min(axis=1, keepdims=True) - found)
    return -shares / shares.sum(axis=1, keepdims=True), np.zeros(NUM_SEEDS)


def with_penalty(num_steps: int) -> Callable[[Array, int], tuple[Array, Array]]:
    """Of the mean cross-entropy, over its size, and a penalty that falls to nearly nothing."""

    def slopes_and_penalty(found: Array, step: int) -> tuple[Array, Array]:
        penalty = FIRST_PENALTY * (LAST_PENALTY / FIRST_PENALTY) ** min(1.0, 2.0 * step / num_steps)
        slopes = -1.0 / (1.0 + np.exp(np.minimum(found, 700.0)))
        size = np.maximum(-slopes.mean(axis=1), penalty)
        return slopes / NUM_SAMPLES / size[:, None], penalty / size

    return slopes_and_penalty


@pytest.mark.parametrize(
    ("num_layers", "num_steps"),
    [(2, 20_000), pytest.param(3, 40_000, marks=pytest.mark.slow), pytest.param(4, 80_000, marks=pytest.mark.slow)],
)
def test_relu_networks_end_at_the_cost_with_a_vanishing_penalty(num_layers: int, num_steps: int) -> None:
    data = samples()
    free, penalised = random_layers(num_layers), random_layers(num_layers)
    early = descend(free, num_steps, without_penalty)
    descend(penalised, num_steps, with_penalty(num_steps))
    ratio = cost(free, *data) / cost(penalised, *data)
    assert (early > 1.1 * cost(free, *data)).all()  # descent goes on to smaller costs after all samples are right
    assert (np.abs(ratio - 1.0) < TOLERANCES[num_layers]).all()
