"""Correspondence, clusters of logit gradients and full factors of layers, against dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from hessmap.errors import InvalidInput
from hessmap.hessians.operators import loss_hessian
from hessmap.layers import kronecker_approximation, logit_gradients
from hessmap.measurement import spectrum
from hessmap.problem.problem import Problem
from hessmap.theory import layers as theory
from hessmap_research.instruments.matricisation import (
    cluster_ratios,
    embedded,
    full_factors,
    input_correspondence,
    output_correspondence,
    rank_one_ratios,
)
from layer_problems import network, problem


def test_kronecker_eigenvectors_are_rank_one_and_correspond_to_single_factors() -> None:
    product = kronecker_approximation(problem(), "2")
    pairs = product.leading(9)
    vectors = product.eigenvectors(pairs)
    assert_allclose(rank_one_ratios(vectors, product.weight_shape), 1, atol=1e-12)
    of_inputs = input_correspondence(vectors, product.input_eigenpairs[1])
    of_outputs = output_correspondence(vectors, product.output_eigenpairs[1])
    assert_allclose(of_inputs, np.eye(8)[:, pairs.input_index], atol=1e-12)
    assert_allclose(of_outputs, np.eye(7)[:, pairs.output_index], atol=1e-12)
    spread = np.linalg.qr(np.random.default_rng(0).standard_normal((56, 3)))[0]
    assert (rank_one_ratios(spread, (7, 8)) < 0.9).all()
    with pytest.raises(InvalidInput, match=r"must be columns with 56 entries; got shape \(55, 3\)"):
        rank_one_ratios(spread[:-1], (7, 8))


def test_class_means_explain_a_part_of_the_logit_gradients() -> None:
    found = logit_gradients(problem(), "2")
    assert 0 < cluster_ratios(found.means, found.total).explained < 1


def test_cluster_ratios_see_which_index_matters() -> None:
    rng = np.random.default_rng(0)
    centres, noise = rng.standard_normal((5, 1, 20)), 0.1 * rng.standard_normal((5, 5, 20))
    by_class = cluster_ratios(centres + noise, total=100.0)
    assert by_class.by_class > 20 > 0.1 > by_class.by_logit
    by_logit = cluster_ratios((centres + noise).transpose(1, 0, 2), total=100.0)
    assert by_logit.by_logit == pytest.approx(by_class.by_class)
    assert_allclose(by_logit.of_each_logit, by_class.of_each_class)
    with pytest.raises(InvalidInput, match=r"must have the shape \(classes, logits, entries\)"):
        cluster_ratios(np.ones((2, 3, 4)), total=1.0)


def test_a_plane_keeps_clusters_together() -> None:
    rng = np.random.default_rng(0)
    points = 10 * np.repeat(np.eye(4), 8, axis=0) + 0.1 * rng.standard_normal((32, 4))
    plane = embedded(points, perplexity=5.0)
    labels = np.repeat(np.arange(4), 8)
    distances = np.linalg.norm(plane[:, None] - plane[None], axis=2) + 1e9 * np.eye(32)
    assert (labels[distances.argmin(1)] == labels).all()
    with pytest.raises(InvalidInput, match="perplexity must be between 1 and a third of the points"):
        embedded(points, perplexity=20.0)


@pytest.mark.parametrize("scale", [2.0**-700, 2.0**-40, 2.0**40, 2.0**700])
def test_a_plane_does_not_depend_on_the_unit_of_the_points(scale: float) -> None:
    """Gradients of a network that fits its data are tiny, and squares of them would vanish."""
    points = np.repeat(np.eye(4), 3, axis=0) + 0.3 * np.random.default_rng(0).standard_normal((12, 4))
    assert_allclose(embedded(scale * points, perplexity=3.0), embedded(points, perplexity=3.0), rtol=1e-6)


def test_full_eigenvectors_from_factors_are_exact_if_inputs_never_vary() -> None:
    """One sample that is fitted: all inputs are their means, and the residual part vanishes."""
    given = problem()
    sample, outputs = given.inputs[:1], given.outputs()[:1]
    fitted = Problem(network(), "squared", sample, outputs)
    factors = full_factors(fitted)
    sizes = [layer.num_outputs for layer in factors.layers]
    found = theory.full_eigenpairs(factors.output_factor, [mean.numpy() for mean in factors.mean_inputs], sizes, 4)
    dense = loss_hessian(fitted).to_dense()
    vectors = factors.in_layout(fitted, torch.from_numpy(found.eigenvectors))
    assert_allclose(found.eigenvalues, spectrum(dense).eigenvalues[:4], rtol=1e-10)
    assert_allclose(dense @ vectors, vectors.numpy() * found.eigenvalues, atol=1e-10 * found.eigenvalues[0])
    assert_allclose(vectors.T @ vectors, np.eye(4), atol=1e-12)
    printed = theory.printed_full_eigenpairs(
        factors.output_factor, [mean.numpy() for mean in factors.mean_inputs], sizes, 4
    )
    assert abs(printed.eigenvalues[0] / found.eigenvalues[0] - 1) > 1e-3
