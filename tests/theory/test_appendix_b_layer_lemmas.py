"""Appendix B of Wu et al. 2022, its second half: conditioned logits, and the lemmas on the whole layer Hessian.

Samples of a wide random network stand for expectations. Norms of means of samples are taken over pairs of different
samples, which leaves no bias.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from hessmap.theory.layers import activity, limit_subspace, logit_subspace

Floats = NDArray[np.float64]
CLASSES, GROWTH = 4, 1.25


class Wide(NamedTuple):
    """Weights of both layers, and of every sample: input, active units, the root Q of A = Q Q^T, and A."""

    first: Floats
    second: Floats
    inputs: Floats
    active: Floats
    roots: Floats
    middle: Floats


@cache
def wide(width: int, count: int = 3000) -> Wide:
    generator, num_inputs = np.random.default_rng(width), round(width**GROWTH)
    first = generator.normal(size=(width, num_inputs)) / num_inputs**0.5
    second = generator.normal(size=(CLASSES, width)) / width**0.5
    inputs = np.maximum(generator.normal(size=(count, num_inputs)), 0)
    hidden = inputs @ first.T
    logits = np.maximum(hidden, 0) @ second.T
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    # Q = (I - p 1^T) diag(sqrt p); the printed one is its transpose.
    roots = (np.eye(CLASSES) - shares[:, :, None]) * np.sqrt(shares)[:, None, :]
    return Wide(first, second, inputs, (hidden > 0).astype(np.float64), roots, roots @ roots.transpose(0, 2, 1))


def output_factor(net: Wide) -> Floats:
    """M = E[D W^T A W D]."""
    columns = np.einsum("cn,sck,sn->skn", net.second, net.roots, net.active).reshape(-1, net.second.shape[1])
    return columns.T @ columns / len(net.inputs)


def independent_factor(net: Wide) -> Floats:
    """M* = E[D' W^T A W D'], D' independent of A, the activities as they were sampled."""
    joint = net.active.T @ net.active / len(net.active)
    return joint * (net.second.T @ net.middle.mean(0) @ net.second)


def squared_norm_of_layer_hessian(net: Wide, count: int = 700) -> float:
    """||E[M (x) x x^T]||_F^2 / d^2 over pairs of different samples: tr(M_i M_j) (x_i . x_j)^2 / d^2."""
    part = [value[:count] for value in (net.inputs, net.active, net.roots)]
    columns = np.einsum("cn,sck,sn->skn", net.second, part[2], part[1]).reshape(-1, net.second.shape[1])
    products = np.square(columns @ columns.T).reshape(count, CLASSES, count, CLASSES).sum((1, 3))
    products *= np.square(part[0] @ part[0].T / part[0].shape[1])
    return float((products.sum() - np.trace(products)) / (count * (count - 1)))


def second_moment_norm(num_inputs: int) -> float:
    """||E[x x^T]||_F^2 / d^2: entries 1/2 on the diagonal, 1 / (2 pi) off it.

    Equation 186 prints (pi - 1) / (2 pi) in place of (pi^2 - 1) / (4 pi^2) for the part that vanishes.
    """
    return 1 / (4 * np.pi**2) + (np.pi**2 - 1) / (4 * np.pi**2 * num_inputs)


def relative(one: Floats, other: Floats) -> float:
    return float(np.abs(one - other).max() / np.abs(other).max())


@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0), (4.0, 1.0, 0.5, 0.5)])
def test_lemma_b6_tails_of_wishart_matrices(scales: tuple[float, ...]) -> None:
    size, freedom, draws = len(scales), 60, 3000
    covariance = np.diag(scales)
    samples = np.random.default_rng(0).normal(size=(draws, freedom, size)) * np.sqrt(scales)
    distances = np.linalg.norm(np.einsum("dfi,dfj->dij", samples, samples) / freedom - covariance, 2, axis=(1, 2))
    ratio = sum(scales) / max(scales)
    for theta in (3.0, 4.0, 5.0):
        radius = ((2 * theta * (ratio + 1) / freedom) ** 0.5 + 2 * theta * ratio / freedom) * max(scales)
        assert (distances >= radius).mean() <= 2 * size * np.exp(-theta)
    assert (distances >= 0.25 * radius).mean() > 2 * size * np.exp(-theta)  # a much smaller radius is left more often


def test_lemma_b11_and_corollary_b3_two_active_units_and_two_inputs_hardly_move_the_logits() -> None:
    """E[A] given D_pp = D_qq = 1, over forty pairs of units, and given two inputs: nearer to E[A] the wider."""
    distances = []
    for width in (8, 256):
        net = wide(width)
        mean, generator = net.middle.mean(0), np.random.default_rng(0)
        pairs = [generator.choice(width, 2, replace=False) for _ in range(40)]
        given = [net.middle[net.active[:, pair].min(axis=1) > 0] for pair in pairs]
        of_units = float(np.mean([relative(some.mean(0), mean) for some in given if len(some) > 300]))
        logits = np.maximum(_with_inputs(net, 2.0) @ net.first.T, 0) @ net.second.T
        distances.append((of_units, relative(_means_of(logits), mean)))
    assert (np.array(distances[1]) < 0.5 * np.array(distances[0])).all(), distances
    assert max(distances[1]) < 0.05, distances


def _with_inputs(net: Wide, value: float) -> Floats:
    """The samples with two inputs set to a value."""
    inputs = net.inputs.copy()
    inputs[:, :2] = value
    return inputs


def _means_of(logits: Floats) -> Floats:
    shares = np.exp(logits)
    shares /= shares.sum(1, keepdims=True)
    return np.diag(shares.mean(0)) - shares.T @ shares / len(shares)


def test_lemmas_b13_and_b22_and_corollary_b4_independent_copies_give_the_same_projected_hessian() -> None:
    """V H V^T, V = W (x) 1^T / sqrt d: of degree 1 in A, 2 in D and 2 in x. With independent D' and x'' the same."""
    distances = []
    for width in (16, 256):
        net = wide(width)
        weights = np.square(net.inputs.sum(1) / net.inputs.shape[1])
        gram = np.einsum("cn,kn,sn->sck", net.second, net.second, net.active)  # W D W^T
        inside = np.einsum("sab,sbc,scd->sad", gram, net.middle, gram)
        projected = np.einsum("s,sad->ad", weights, inside) / len(weights)
        copies = weights.mean() * (net.second @ independent_factor(net) @ net.second.T)
        distances.append(relative(copies, projected))
    assert distances[1] < 0.3 * distances[0]
    assert distances[1] < 0.05


def test_lemma_b21_independent_copies_give_the_same_norm_of_the_layer_hessian() -> None:
    ratios = []
    for width in (16, 256):
        net = wide(width)
        copies = np.linalg.norm(independent_factor(net)) ** 2 * second_moment_norm(net.inputs.shape[1])
        ratios.append(squared_norm_of_layer_hessian(net) / copies)
    assert abs(ratios[1] - 1) < 0.5 * abs(ratios[0] - 1)
    assert ratios[1] == pytest.approx(1, abs=0.1)


def test_lemmas_b18_b19_and_b23_do_not_hold_because_units_are_not_active_half_of_the_time() -> None:
    """Printed: the share that the rows of W (of W (x) 1) keep of M* (of H) tends to 1. It stays near 0.7.

    Of the printed form 1/4 (K + diag K) of M* it does tend to 1: the step that fails is Lemma B.15.
    """
    net = wide(256)
    keep = net.second
    real, printed = independent_factor(net), keep.T @ net.middle.mean(0) @ keep
    printed = (printed + np.diag(np.diag(printed))) / 4
    shares = [float(np.linalg.norm(keep @ m @ keep.T) ** 2 / np.linalg.norm(m) ** 2) for m in (real, printed)]
    assert 0.6 < shares[0] < 0.8
    assert shares[1] == pytest.approx(1, abs=0.1)
    weights = np.square(net.inputs.sum(1) / net.inputs.shape[1])
    gram = np.einsum("cn,kn,sn->sck", keep, keep, net.active)
    inside = np.einsum("s,sab,sbc,scd->ad", weights, gram, net.middle, gram, optimize=True) / len(weights)
    of_layer = float(np.linalg.norm(inside) ** 2) / squared_norm_of_layer_hessian(net)
    assert 0.6 < of_layer < 0.85


def test_lemma_b20_the_independent_hessian_is_a_kronecker_product_with_the_stated_inputs() -> None:
    """Its right factor is as printed; its left one has the activities of the units for one half."""
    net = wide(64)
    second_moment = net.inputs.T @ net.inputs / len(net.inputs)
    size = second_moment.shape[0]
    closed = np.full((size, size), 1 / (2 * np.pi)) + np.eye(size) * (np.pi - 1) / (2 * np.pi)
    assert np.abs(second_moment - closed).max() < 0.1
    assert np.linalg.norm(second_moment) == pytest.approx(np.linalg.norm(closed), rel=0.03)


def test_lemma_b25_the_projection_of_the_layer_is_that_of_the_outputs_beside_one_direction() -> None:
    for width in (8, 40):
        second = np.random.default_rng(width).normal(size=(3, width)) / width**0.5
        rows = np.kron(second, np.full((1, 5), 5**-0.5))
        basis, kept = (np.linalg.qr(matrix.T)[0] for matrix in (second, rows))
        small = second.T @ second - basis @ basis.T
        assert np.linalg.norm(rows.T @ rows - kept @ kept.T) == pytest.approx(np.linalg.norm(small))


def test_corollary_b5_the_space_of_the_kronecker_product_is_weighted_by_activities() -> None:
    """Top c - 1 of E[M] (x) E[x x^T] over R(W) without 1^T W, times 1: near 0.83, not 1; with activities near 1."""
    net = wide(256)
    values, vectors = np.linalg.eigh(output_factor(net))
    inputs = np.linalg.eigvalsh(net.inputs.T @ net.inputs / len(net.inputs))
    assert inputs[-1] * values[-CLASSES + 1] > inputs[-2] * values[-1]  # so the top space is top(M) (x) 1
    top = vectors[:, -CLASSES + 1 :]
    overlaps = [
        float(np.linalg.norm(top.T @ space) ** 2 / (CLASSES - 1))
        for space in (logit_subspace(net.second), limit_subspace(net.second, activity(net.first)))
    ]
    assert 0.78 < overlaps[0] < 0.88
    assert overlaps[1] > 0.99
