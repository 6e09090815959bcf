"""The variance of quadratic forms of random signs, measured from their entries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from hessmap.measurement.trace import EntryMoments
from known_spectra import random_orthogonal, rotated


def matrix_of(size: int, seed: int = 3) -> Tensor:
    return torch.from_numpy(rotated(np.random.default_rng(seed).standard_normal(size)))


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
