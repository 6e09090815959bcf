"""Gradient flow from balanced weights (Singh, Bachmann & Hofmann 2021, Lemmas 8, 23 and 24)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from hessmap_research.instruments.stationary import gradient_flow

Floats = NDArray[np.float64]
SIZE, DEPTH = 3, 3
TIMES = np.linspace(0, 2, 9)


def samples() -> tuple[Floats, Floats]:
    """Classes whose inputs each have mean zero, and one-hot targets."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(SIZE, 8, SIZE))
    inputs -= inputs.mean(axis=1, keepdims=True)
    return inputs.reshape(-1, SIZE).T, np.repeat(np.eye(SIZE), 8, axis=0).T


def balanced_start(seed: int) -> Floats:
    """W_k = U_(k+1) S U_k^T with orthogonal U: W_(k+1)^T W_(k+1) = W_k W_k^T."""
    generator = np.random.default_rng(seed)
    bases = [np.linalg.qr(generator.normal(size=(SIZE, SIZE)))[0] for _ in range(DEPTH + 1)]
    middle = np.diag([1.2, 0.8, 0.5])
    return np.stack([bases[layer + 1] @ middle @ bases[layer].T for layer in range(DEPTH)])


def gradient(weights: Floats) -> Floats:
    inputs, targets = samples()
    before, after = [np.eye(SIZE)], [np.eye(SIZE)]
    for layer in range(DEPTH):
        before.append(weights[layer] @ before[-1])
        after.append(after[-1] @ weights[DEPTH - 1 - layer])
    moment = (before[-1] @ inputs - targets) @ inputs.T / inputs.shape[1]
    return np.stack([after[DEPTH - 1 - layer].T @ moment @ before[layer].T for layer in range(DEPTH)])


def path(start: Floats) -> Floats:
    found = gradient_flow(lambda flat: gradient(flat.reshape(start.shape)).ravel(), start.ravel(), TIMES)
    return np.asarray(found).reshape(len(TIMES), *start.shape)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_balanced_weights_stay_balanced_and_keep_their_rank(seed: int) -> None:
    weights = path(balanced_start(seed))
    for moment in weights:
        for earlier, later in pairwise(moment):
            np.testing.assert_allclose(later.T @ later, earlier @ earlier.T, atol=1e-7)
    determinants = np.linalg.det(weights)
    assert (np.sign(determinants) == np.sign(determinants[0])).all()
    assert np.abs(determinants).min() > 1e-4
    assert not np.allclose(weights[0], weights[-1], atol=0.05)


def test_weights_that_are_not_balanced_do_not_become_it_at_once() -> None:
    start = balanced_start(0)
    start[0] *= 2
    last = path(start)[-1]
    assert np.abs(last[1].T @ last[1] - last[0] @ last[0].T).max() > 0.1


def test_the_determinant_follows_jacobis_formula() -> None:
    start = balanced_start(1)
    for weight, slope in zip(start, -gradient(start), strict=True):
        adjugate = np.linalg.det(weight) * np.linalg.inv(weight)
        step = 1e-6
        difference = (np.linalg.det(weight + step * slope) - np.linalg.det(weight - step * slope)) / (2 * step)
        assert np.trace(adjugate @ slope) == pytest.approx(difference, rel=1e-7)
