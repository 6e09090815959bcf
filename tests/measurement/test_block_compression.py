"""Spectra that are taken from smaller blocks: the same numbers as LAPACK's of the whole, or LAPACK's themselves."""

import numpy as np
import pytest
import torch

import hessmap as hm
from hessmap.linalg.operator import DenseOperator
from hessmap.linalg.vectors import Layout
from hessmap.measurement import numerical_rank, spectrum
from hessmap.measurement import rank as block_compression
from hessmap.measurement.rank import spectra_by_blocks

SHAPES = (("first", (30, 25)), ("bias", (12,)), ("second", (24, 16)))  # 1146 parameters
SIZES = (750, 12, 384)
COMPRESSED = "dense, compressed block by block"


def operator(kept: tuple[int, int, int], seed: int = 0, smallest: float = 1e-7) -> DenseOperator:
    """A symmetric matrix whose rows of each block span so many dimensions, of eigenvalues down to ``smallest``."""
    generator = np.random.default_rng(seed)
    bases = [np.linalg.qr(generator.standard_normal((size, rank)))[0] for size, rank in zip(SIZES, kept, strict=True)]
    turned = np.linalg.qr(generator.standard_normal((sum(kept), sum(kept))))[0]
    values = np.geomspace(1.0, smallest, sum(kept)) * generator.choice((-1, 1), sum(kept))
    wide = np.zeros((sum(SIZES), sum(kept)))
    row = column = 0
    for basis in bases:
        wide[row : row + len(basis), column : column + basis.shape[1]] = basis
        row, column = row + len(basis), column + basis.shape[1]
    matrix = wide @ (turned * values) @ turned.T @ wide.T
    return DenseOperator(torch.from_numpy((matrix + matrix.T) / 2), Layout(SHAPES))


@pytest.mark.parametrize("kept", [(200, 12, 100), (1, 0, 0), (590, 3, 20), (250, 12, 384)])
def test_a_compressed_spectrum_is_that_of_the_whole_matrix(kept: tuple[int, int, int]) -> None:
    given = operator(kept)
    (found,), whole = spectra_by_blocks([given]), spectrum(given)
    assert found.method == COMPRESSED
    assert found.eigenvalue_error is not None
    np.testing.assert_allclose(found.eigenvalues, whole.eigenvalues, atol=1e-13)
    assert np.abs(found.eigenvalues - whole.eigenvalues).max() <= found.eigenvalue_error


def test_a_rank_keeps_its_threshold_its_smallest_value_and_its_doubt() -> None:
    given = operator((200, 12, 100))
    fast, slow = numerical_rank(given), numerical_rank(given.to_dense())
    assert (fast.value, slow.value) == (312, 312)
    assert (fast.method, slow.method) == (COMPRESSED, "dense")
    assert fast.threshold == pytest.approx(slow.threshold, rel=1e-12)
    assert fast.smallest_kept == pytest.approx(slow.smallest_kept, rel=1e-5)
    assert fast.largest_dropped > 0
    assert (fast.decidable, slow.decidable) == (True, True)


def test_values_below_the_threshold_are_told_from_zeros_as_before() -> None:
    """Eigenvalues all the way down to rounding: no gap, however they are found."""
    given = operator((200, 12, 100), smallest=1e-14)
    assert not numerical_rank(given).decidable
    assert not numerical_rank(given.to_dense()).decidable


def test_a_rank_that_lapack_decides_is_decided() -> None:
    """Kept eigenvalues just above the threshold leave a gap that a loose bound of what is missed would close."""
    for smallest in (1e-10, 2e-12):
        given = operator((200, 12, 100), smallest=smallest)
        fast, slow = numerical_rank(given), numerical_rank(given.to_dense())
        assert (fast.value, fast.decidable) == (slow.value, slow.decidable) == (312, True)


def test_blocks_that_do_not_shrink_are_left_to_lapack() -> None:
    given = operator((750, 12, 384))
    (found,) = spectra_by_blocks([given])
    assert (found.method, found.num_zeros) == ("dense", 0)
    assert found.eigenvalues == pytest.approx(spectrum(given).eigenvalues, abs=1e-14)


def test_bases_that_miss_a_direction_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The products with random vectors must see one direction of 312 that the bases do not have."""
    whole_basis = block_compression._basis

    def without_one(columns: list, generator: np.random.Generator) -> torch.Tensor:
        found = whole_basis(columns, generator)
        return found[:, 1:] if found.shape[1] < found.shape[0] else found

    given = operator((200, 12, 100))
    monkeypatch.setattr(block_compression, "_basis", without_one)
    (found,) = spectra_by_blocks([given])
    assert found.method == "dense"
    assert numerical_rank(given).value == 312


@pytest.mark.parametrize("bias", [False, True])
def test_three_hessians_of_a_linear_network_share_their_bases(bias: bool) -> None:
    net = hm.FullyConnected((30, 26, 12, 5), bias=bias)
    generator = torch.Generator().manual_seed(0)
    inputs, targets = (torch.randn(60, size, generator=generator, dtype=torch.float64) for size in (30, 5))
    problem = hm.Problem(net.build(seed=0), "squared", inputs, targets)
    hessians = [hm.outer_product_hessian(problem), hm.functional_hessian(problem), hm.loss_hessian(problem)]
    together = spectra_by_blocks(hessians)
    assert [found.method for found in together] == [COMPRESSED] * 3
    for found, hessian in zip(together, hessians, strict=True):
        fast, slow = numerical_rank(found), numerical_rank(spectrum(hessian))
        assert (fast.value, fast.decidable) == (slow.value, True)
        assert fast.smallest_kept == pytest.approx(slow.smallest_kept, rel=1e-6)


def test_a_zero_matrix_has_rank_zero() -> None:
    size = sum(SIZES)
    given = DenseOperator(torch.zeros(size, size, dtype=torch.float64), Layout(SHAPES), scale=1.0)
    measured = numerical_rank(given)
    assert (measured.value, measured.largest_dropped, measured.size) == (0, 0.0, size)
