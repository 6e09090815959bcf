"""Standard errors of traces, against the variances that they estimate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from hessmap.measurement.trace import (
    EntryMoments,
    ProbedSketch,
    probed_sketch,
    shared_standard_error,
    values_without_one,
    values_without_two,
)
from known_spectra import random_orthogonal, rotated


def matrix_of(size: int, seed: int = 3) -> Tensor:
    return torch.from_numpy(rotated(np.random.default_rng(seed).standard_normal(size)))


def sphere_probes(size: int, count: int, seed: int) -> Tensor:
    probes = torch.randn(size, count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return probes * (size**0.5 / probes.norm(dim=0))


def sketch_of(matrix: Tensor, probes: Tensor) -> ProbedSketch:
    images = matrix @ probes
    basis = torch.linalg.qr(images).Q
    return probed_sketch(probes, images, basis, matrix @ basis)


def left_out_value(matrix: Tensor, probe: Tensor, others: Tensor) -> float:
    """tr(Q^T A Q) + (n - k) r^T A r / r^T r with r the probe outside of the range Q of A times the k others."""
    basis = torch.linalg.qr(matrix @ others).Q
    rest = probe - basis @ (basis.T @ probe)
    outside = (len(matrix) - basis.shape[1]) * (rest @ matrix @ rest) / (rest @ rest)
    return float((basis * (matrix @ basis)).sum() + outside)


def test_values_are_those_of_sketches_that_know_nothing_of_the_probes_left_out() -> None:
    matrix, probes = matrix_of(30), sphere_probes(30, 7, seed=0)
    sketch = sketch_of(matrix, probes)
    ones, twos = values_without_one(sketch), values_without_two(sketch)
    for j in range(7):
        others = [k for k in range(7) if k != j]
        assert ones[j] == pytest.approx(left_out_value(matrix, probes[:, j], probes[:, others]), rel=1e-9)
        for i in others:
            rest = probes[:, [k for k in others if k != i]]
            assert twos[i, j] == pytest.approx(left_out_value(matrix, probes[:, j], rest), rel=1e-9)


def test_the_covariance_of_two_values_is_the_mean_product_of_their_changes() -> None:
    """The identity of ``shared_standard_error``, with signs: over 1,200 draws the variance of the mean is the mean of
    s^2 / m + d_ij d_ji, and without the second term it is missed."""
    matrix, count = torch.from_numpy(rotated(np.linspace(1.0, 3.0, 20))), 6
    means, plain, shared, claimed = [], [], [], []
    for seed in range(1200):
        sketch = sketch_of(matrix, sphere_probes(20, count, seed))
        values, without = values_without_one(sketch), values_without_two(sketch)
        changes = values - without
        np.fill_diagonal(changes, 0.0)
        means.append(values.mean())
        plain.append(values.var(ddof=1) / count)
        shared.append((changes * changes.T).sum() / (count * (count - 1)))
        claimed.append(shared_standard_error(values, without) ** 2)
    trace, variance = float(matrix.trace()), float(np.var(means))
    assert abs(np.mean(means) - trace) < 4 * (variance / 1200) ** 0.5
    assert np.mean(plain) + np.mean(shared) == pytest.approx(variance, rel=0.12)
    assert np.mean(plain) < 0.85 * variance
    assert np.mean(claimed) >= (np.mean(plain) + np.mean(shared)) * (1 - 1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_variance_of_a_quadratic_form_of_signs_is_twice_that_of_its_entries(dtype: torch.dtype) -> None:
    """With a basis and without, in one block and in several: 2 sum_{i != j} B_ij^2 for B outside of the basis."""
    matrix = matrix_of(40)
    for width in (0, 5):
        basis = torch.from_numpy(random_orthogonal(40, 1)[:, :width].copy())
        outside = torch.eye(40, dtype=torch.float64) - basis @ basis.T
        inner = outside @ matrix @ outside
        variance = 2 * float(inner.square().sum() - inner.diagonal().square().sum())
        signs = torch.randint(0, 2, (40, 800), generator=torch.Generator().manual_seed(5)).double() * 2 - 1
        inside = basis.T @ signs
        probes = signs - basis @ inside
        given = [part.to(dtype) for part in (probes, matrix @ probes, inside)]
        whole, pieces = EntryMoments(40), EntryMoments(40)
        whole.add(given[0], given[1], basis.to(dtype), given[2])
        for part in torch.split(torch.arange(800), 96):
            pieces.add(given[0][:, part], given[1][:, part], basis.to(dtype), given[2][:, part])
        assert 2 * whole.variance == pytest.approx(variance, rel=0.05)
        assert pieces.variance == pytest.approx(whole.variance, rel=1e-5 if dtype == torch.float32 else 1e-12)
        assert pieces.count == whole.count == 800


def test_signs_measure_a_diagonal_matrix_without_spread() -> None:
    moments, probes = EntryMoments(50), torch.randint(0, 2, (50, 16)).double() * 2 - 1
    images = torch.linspace(1, 9, 50, dtype=torch.float64)[:, None] * probes
    for _ in range(3):
        moments.add(probes, images, probes[:, :0], torch.zeros(0, 16, dtype=torch.float64))
    assert moments.variance == 0.0
