"""Appendix B of Wu et al. 2022 at finite width: what its lemmas say of random weights, and where the limits differ."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

Floats = NDArray[np.float64]
CLASSES, GROWTH = 4, 1.25


def weights(width: int, seed: int) -> tuple[Floats, Floats]:
    """First weights N(0, 1/d), d = n^1.25, and second weights N(0, 1/n)."""
    generator, inputs = np.random.default_rng(seed), round(width**GROWTH)
    return generator.normal(size=(width, inputs)) / inputs**0.5, generator.normal(size=(CLASSES, width)) / width**0.5


def deviations(width: int) -> Floats:
    """Means over ten draws: of squared row norms from 1, of W W^T from I, of W^T W from the projection on its rows."""
    found = []
    for seed in range(10):
        second = np.random.default_rng(seed).normal(size=(CLASSES, width)) / width**0.5
        rows = np.abs((second**2).sum(1) - 1).max()
        gram = np.linalg.norm(second @ second.T - np.eye(CLASSES), 2)
        # W^T W and the projection have the same range: their difference is that of the singular values from 1.
        projection = np.linalg.norm(np.linalg.svd(second, compute_uv=False) ** 2 - 1)
        found.append((rows, gram, projection))
    return np.mean(found, axis=0)


def test_lemma_b2_tails_of_chi_squared() -> None:
    for freedom in (1, 5, 50):
        for exponent in (0.5, 2.0, 10.0):
            above = freedom + 2 * (freedom * exponent) ** 0.5 + 2 * exponent
            below = freedom - 2 * (freedom * exponent) ** 0.5
            assert max(chi2.sf(above, freedom), chi2.cdf(below, freedom)) <= np.exp(-exponent)


@pytest.mark.parametrize("width", [64, 256, 1024])
def test_lemma_b5_first_weights_become_orthonormal_slowly(width: int) -> None:
    """The largest eigenvalue of W W^T is at the edge (1 + sqrt(n / d))^2 of the law of Marchenko and Pastur."""
    found = np.mean(
        [np.linalg.norm((first := weights(width, seed)[0]) @ first.T - np.eye(width), 2) for seed in range(3)]
    )
    shape = width ** (1 - GROWTH)  # n^(-0.25)
    edge = 2 * shape**0.5 + shape
    assert round(edge, 2) == {64: 1.54, 256: 1.25, 1024: 1.02}[width]
    assert found == pytest.approx(edge, rel=0.1)


def test_lemmas_b3_b7_and_corollary_b1_second_weights_become_orthonormal() -> None:
    narrow, wide = deviations(100), deviations(10_000)
    assert (wide < 0.2 * narrow).all()  # as 1 / sqrt(n): a tenth
    assert (wide < 0.1).all()


@pytest.mark.parametrize("width", [64, 256])
def test_lemmas_b4_and_b8_and_corollary_b2_entries_and_columns_are_small(width: int) -> None:
    for seed in range(5):
        first, second = weights(width, seed)
        assert np.linalg.norm(first, axis=0).max() < 5 * width ** (-(GROWTH - 1) / 2)
        assert np.abs(first).max() <= 2 * first.shape[1] ** (-1 / 3)
        assert np.abs(second).max() <= 2 * width ** (-1 / 3)


def test_lemma_b24_the_second_moment_of_rectified_normal_inputs() -> None:
    size = 6
    closed = np.full((size, size), 1 / (2 * np.pi)) + np.eye(size) * (np.pi - 1) / (2 * np.pi)
    values = np.linalg.eigvalsh(closed / size)
    rest = (np.pi - 1) / (2 * np.pi * size)
    np.testing.assert_allclose(values, [*[rest] * (size - 1), 1 / (2 * np.pi) + rest])
    inputs = np.maximum(np.random.default_rng(0).normal(size=(200_000, size)), 0)
    np.testing.assert_allclose(inputs.T @ inputs / len(inputs), closed, atol=0.005)


@cache
def output_factors(width: int) -> tuple[Floats, Floats, Floats]:
    """W, the sampled E[D W^T A W D], and M* = E[D' W^T A W D'] with independent activations."""
    first, second = weights(width, seed=0)
    generator = np.random.default_rng(1)
    hidden = np.maximum(generator.normal(size=(4000, first.shape[1])), 0) @ first.T
    active = (hidden > 0).astype(np.float64)
    logits = np.maximum(hidden, 0) @ second.T
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    mixed = (shares @ second) * active
    sampled = -mixed.T @ mixed
    for number in range(CLASSES):
        rows = second[number] * active
        sampled += rows.T @ (shares[:, [number]] * rows)
    middle = np.diag(shares.mean(0)) - shares.T @ shares / len(shares)
    return second, sampled / len(shares), active.T @ active / len(active) * (second.T @ middle @ second)


def test_lemmas_b16_and_b17_independent_activations_give_the_same_limit() -> None:
    errors = []
    for width in (32, 256):
        second, sampled, independent = output_factors(width)
        norms = np.linalg.norm(sampled) ** 2 / np.linalg.norm(independent) ** 2
        logits = [second @ factor @ second.T for factor in (sampled, independent)]
        errors.append((abs(norms - 1), np.abs(logits[0] - logits[1]).max() / np.abs(logits[0]).max()))
    assert (np.array(errors[1]) < 0.3 * np.array(errors[0])).all()
    assert max(errors[1]) < 0.02


def test_lemma_b14_does_not_hold_because_units_are_not_active_half_of_the_time() -> None:
    """Printed: ||W M W^T||^2 / ||M||^2 tends to 1. It falls: the space of M is not the rows of W."""
    for width, expected in ((64, 0.84), (256, 0.63)):
        second, sampled, _ = output_factors(width)
        ratio = np.linalg.norm(second @ sampled @ second.T) ** 2 / np.linalg.norm(sampled) ** 2
        assert abs(ratio - expected) < 0.02
