"""Formulas of layer Hessians against random draws and direct linear algebra."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import ArrayLike

from example_shares import share_of_examples
from hessmap.errors import InvalidInput
from hessmap.theory import layers

seeds = st.integers(0, 10**6)


def softmax_hessian(probabilities: ArrayLike) -> np.ndarray:
    p = np.asarray(probabilities)
    return np.diag(p) - np.outer(p, p)


def orthonormal(rng: np.random.Generator, size: int, count: int) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((size, count)))[0]


@share_of_examples(0.5)
@given(seed=seeds, classes=st.integers(2, 6), width=st.integers(6, 12))
def test_logit_subspace_is_the_range_of_the_output_factor(seed: int, classes: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    product = rng.standard_normal((classes, width))
    hessian = softmax_hessian(rng.dirichlet(np.ones(classes) * 5))
    factor = layers.output_factor_from_weights(product, hessian)
    basis = layers.logit_subspace(product)
    assert basis.shape == (width, classes - 1)
    assert_allclose(basis.T @ basis, np.eye(classes - 1), atol=1e-12)
    assert_allclose(basis @ (basis.T @ factor), factor, atol=1e-12)
    printed = layers.row_space_without_ones(product)
    assert_allclose(printed.T @ product.sum(axis=0), 0, atol=1e-11)
    rows = np.linalg.qr(product.T)[0]
    assert_allclose(rows @ (rows.T @ printed), printed, atol=1e-11)


@share_of_examples(0.5)
@given(seed=seeds, depth=st.integers(0, 3))
def test_weighted_products_multiply_in_order_of_execution(seed: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    widths = rng.integers(2, 6, depth + 1)
    weights = [rng.standard_normal((after, before)) for before, after in pairwise(widths)]
    activities = [rng.random(before) for before in widths[:-1]]
    vector = rng.standard_normal(widths[0])
    moved = vector
    for weight, activity in zip(weights, activities, strict=True):
        moved = weight @ (activity * moved)
    assert_allclose(layers.activity_weighted_product(weights, activities, widths[0]) @ vector, moved, atol=1e-12)
    ones = [np.ones(before) for before in widths[:-1]]
    plain = layers.activity_weighted_product(weights, ones, widths[0])
    assert_allclose(plain, layers.weight_product(weights, widths[0]), atol=1e-12)


def test_a_product_with_too_few_independent_rows_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the rows of S must span 2 dimensions; they span 1"):
        layers.logit_subspace([[1.0, 0.0], [0.0, 0.0], [2.0, 0.0]])


def test_activity_is_the_share_of_rectified_gaussian_inputs_above_zero() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((12, 400)) / 20
    inputs = np.maximum(rng.standard_normal((20000, 400)), 0)
    measured = (inputs @ weight.T > 0).mean(axis=0)
    assert_allclose(layers.activity(weight), measured, atol=0.02)
    assert np.abs(layers.activity(weight) - 0.5).max() > 0.15  # far from the printed one half


def test_mean_squared_activity_tends_to_its_limit() -> None:
    rng = np.random.default_rng(1)
    found = layers.activity(rng.standard_normal((40000, 50)) / 50**0.5)
    assert found.mean() == pytest.approx(0.5, abs=0.01)
    assert np.square(found).mean() == pytest.approx(layers.mean_squared_activity_limit(), abs=0.005)


@share_of_examples(0.25)
@given(seed=seeds)
def test_output_factor_limit_is_the_mean_over_independent_activities(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight, q = rng.standard_normal((3, 4)), rng.random(4)
    middle = softmax_hessian([0.2, 0.3, 0.5])
    patterns = np.array(np.meshgrid(*[[0, 1]] * 4)).reshape(4, -1).T
    chances = np.prod(np.where(patterns, q, 1 - q), axis=1)
    mean = sum(c * np.diag(d) @ weight.T @ middle @ weight @ np.diag(d) for c, d in zip(chances, patterns, strict=True))
    assert_allclose(layers.output_factor_limit(weight, middle, q), mean, atol=1e-12)
    printed = layers.printed_output_factor_limit(weight, middle)
    kernel = weight.T @ middle @ weight
    assert_allclose(printed, (kernel + np.diag(np.diag(kernel))) / 4, atol=1e-12)


def test_corrected_limit_explains_a_wide_network_and_the_printed_one_does_not() -> None:
    """Theorem 4.2 at n = 128, c = 4: the top three eigenvectors of M, by sampling."""
    rng = np.random.default_rng(0)
    width, dim, classes = 128, 430, 4
    overlaps = []
    for _ in range(3):
        first = rng.standard_normal((width, dim)) / dim**0.5
        second = rng.standard_normal((classes, width)) / width**0.5
        factor, mean = np.zeros((width, width)), np.zeros((classes, classes))
        inputs = np.maximum(rng.standard_normal((3000, dim)), 0)
        hidden = inputs @ first.T
        logits = np.maximum(hidden, 0) @ second.T
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        roots = np.sqrt(p)[:, :, None] * (np.eye(classes) - p[:, None, :])
        rows = (roots @ second) * (hidden > 0)[:, None, :]
        factor = np.einsum("nki,nkj->ij", rows, rows) / len(inputs)
        mean = np.einsum("nki,nkj->ij", roots, roots) / len(inputs)
        top = np.linalg.eigh(factor)[1][:, -3:]
        activity = layers.activity(first)
        spaces = layers.limit_subspace(second, activity), layers.logit_subspace(second)
        limit = np.linalg.eigh(layers.output_factor_limit(second, mean, activity))[1][:, -3:]
        overlaps.append([np.square(top.T @ space).sum() / 3 for space in (*spaces, limit)])
    corrected, printed, whole = np.mean(overlaps, axis=0)
    assert corrected > 0.98
    assert whole > 0.99
    assert abs(printed - layers.printed_subspace_overlap_limit()) < 0.06


@share_of_examples(0.5)
@given(seed=seeds)
def test_predicted_overlap_is_that_of_the_kronecker_products(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spectra, tops = [], []
    for _ in range(2):
        factors = [rng.standard_normal((size, 2 * size)) for size in (3, 4)]
        left, right = (factor @ factor.T for factor in factors)
        spectra.append(layers.FactorSpectra.of(left, right))
        tops.append(np.linalg.eigh(np.kron(left, right))[1][:, ::-1])
    predicted = layers.predicted_overlap(*spectra, count=12)
    true = [np.square(tops[0][:, :k].T @ tops[1][:, :k]).sum() / k for k in range(1, 13)]
    assert_allclose(predicted, true, atol=1e-9)
    assert predicted[-1] == pytest.approx(1)


def test_growth_ends_where_the_second_input_direction_comes_in() -> None:
    tau, gamma = np.array([5.0, 4.0, 3.0, 0.2]), np.array([10.0, 2.0])
    assert layers.growth_end(tau, gamma) == 3
    order = np.argsort(-np.outer(tau, gamma).ravel())
    assert (order[:3] % 2 == 0).all()
    assert order[3] % 2 == 1
    assert layers.growth_end([1.0, 0.9], [3.0]) == 2
    with pytest.raises(InvalidInput, match="eigenvalues must be descending, with a positive first one"):
        layers.growth_end([1.0, 2.0], [1.0])


def test_overlap_of_haar_random_models_grows_linearly_up_to_the_end() -> None:
    """Theorem G.1 with its hypothesis: m large eigenvalues, two random output bases, one shared mean input."""
    rng = np.random.default_rng(0)
    tau, gamma = np.linspace(2, 1, 10), np.array([10.0, 1.0, 0.5])
    shared = orthonormal(rng, 3, 3)
    curves = []
    for _ in range(300):
        models = [layers.FactorSpectra(tau, orthonormal(rng, 10, 10), gamma, shared) for _ in range(2)]
        curves.append(layers.predicted_overlap(*models, count=10))
    end = layers.growth_end(tau, gamma)
    assert end == 10
    assert_allclose(np.mean(curves, axis=0), layers.linear_growth(10, 1.0, end), rtol=0.12)


def test_full_eigenpairs_check_their_shapes() -> None:
    with pytest.raises(InvalidInput, match="square over the outputs of all layers"):
        layers.full_eigenpairs(np.eye(3), [[1.0]], [2], 1)
    with pytest.raises(InvalidInput, match="count must be between 1 and 2; got 3"):
        layers.full_eigenpairs(np.eye(2), [[1.0]], [2], 3)
