"""Traces of all blocks from the same products, the negative share, and the largest Ritz value."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.linalg.operator import DenseOperator, PrincipalBlock
from hessmap.measurement.eigenpairs import largest_ritz_value
from hessmap.measurement.spectral_sums import negative_share
from hessmap.measurement.trace import block_traces


def matrix(size: int = 200, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(random.standard_normal((size, size)))
    values = np.concatenate([[50.0, 30.0, -20.0], random.standard_normal(size - 3)])
    return (basis * values) @ basis.T


NUMBERS = torch.arange(200) % 4


def test_block_traces_are_unbiased_and_their_errors_true() -> None:
    whole = matrix()
    truth = np.array([np.diag(whole)[NUMBERS.numpy() == block].sum() for block in range(4)])
    found = [block_traces(whole, NUMBERS, max_products=32, relative_error=1e-9, seed=seed) for seed in range(40)]
    errors = np.array([one.values - truth for one in found])
    claimed = np.array([one.standard_errors for one in found])
    assert 0.7 < np.sqrt(np.mean(errors**2) / np.mean(claimed**2)) < 1.4
    assert (np.abs(errors.mean(0)) < 4 * np.sqrt(np.mean(claimed**2, axis=0) / 40)).all()
    assert found[0].whole.value == pytest.approx(found[0].values.sum())
    assert found[0].whole.num_products == found[0].whole.num_probes + 0


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_known_pairs_take_outliers_out_of_the_error_whatever_they_are(shift: float) -> None:
    """Vectors that are near to eigenvectors, of this matrix or of another one."""
    whole = matrix() + shift * np.eye(200)
    known = hm.top_eigenpairs(matrix(), 2, tolerance=1e-2)
    truth = float(np.trace(whole))
    plain = block_traces(whole, NUMBERS, max_products=64, relative_error=1e-9)
    found = block_traces(whole, NUMBERS, known=known, max_products=64, relative_error=1e-9)
    assert found.whole.standard_error < 0.7 * plain.whole.standard_error
    assert abs(found.whole.value - truth) < 5 * found.whole.standard_error


def test_probes_end_when_the_error_is_met_or_the_products_are_used_up() -> None:
    easy = block_traces(np.eye(200), NUMBERS, max_products=64)
    assert (easy.whole.reached, easy.whole.num_products) == (True, 16)
    hard = block_traces(matrix() - np.trace(matrix()) / 200 * np.eye(200), NUMBERS, max_products=33)
    assert (hard.whole.reached, hard.whole.num_products) == (False, 32)


def test_rows_without_a_block_are_refused() -> None:
    with pytest.raises(InvalidInput, match="every one of 200 rows must belong to a block"):
        block_traces(matrix(), NUMBERS[:10])


def test_the_negative_share_is_that_of_the_spectrum() -> None:
    whole = matrix()
    values = np.linalg.eigvalsh(whole)
    truth = -values[values < 0].sum() / np.abs(values).sum()
    found = negative_share(hm.density_estimate(whole, num_steps=64, num_probes=16, method="quadrature"))
    assert abs(found.value - truth) < 5 * found.standard_error + found.method_error
    assert 0 < found.standard_error < 0.1
    assert negative_share(hm.density_estimate(np.zeros((5, 5)), num_probes=2)).value == 0.0


def test_the_largest_ritz_value_is_a_lower_bound_with_a_residual() -> None:
    whole = matrix()
    largest = float(np.linalg.eigvalsh(whole)[-1])
    rough, good = largest_ritz_value(whole, 4), largest_ritz_value(whole, 40, tolerance=1e-6)
    assert rough.value <= good.value <= largest * (1 + 1e-12)
    assert good.value == pytest.approx(largest, rel=1e-6)
    assert (good.converged, good.residual <= 1e-6 * largest) == (True, True)
    assert rough.num_products <= 4
    assert largest_ritz_value(np.zeros((5, 5))).value == 0.0


def test_a_principal_block_multiplies_as_its_matrix() -> None:
    whole, places = torch.from_numpy(matrix()), torch.tensor([3, 1, 7])
    block = PrincipalBlock(DenseOperator(whole), places)
    assert torch.allclose(block.to_dense(), whole[places][:, places])
    assert largest_ritz_value(block).value == pytest.approx(float(torch.linalg.eigvalsh(whole[places][:, places])[-1]))
