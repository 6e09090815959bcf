"""Numerical rank: the count, the scale it is relative to, and when it is to be believed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hessmap.errors import InvalidInput
from hessmap.linalg.operator import DenseOperator, LinearOperator
from hessmap.linalg.vectors import Layout
from hessmap.measurement import numerical_rank, spectrum
from hessmap.records import RankMeasurement, Spectrum
from known_spectra import KNOWN_MATRICES, NAMES, KnownMatrix, random_orthogonal

each_known_matrix = pytest.mark.parametrize("case", KNOWN_MATRICES, ids=NAMES)


@each_known_matrix
def test_rank_is_the_number_of_non_zero_eigenvalues(case: KnownMatrix) -> None:
    found = numerical_rank(case.matrix)
    assert found.value == case.rank
    assert found.decidable
    assert found.size == len(case.eigenvalues)
    assert found.scale == pytest.approx(case.norm, rel=1e-12, abs=0)
    assert found.threshold == pytest.approx(1e-12 * case.norm, rel=1e-12, abs=0)
    assert found.smallest_kept >= found.threshold >= found.largest_dropped or case.rank == 0
    assert found.gap > 100


@each_known_matrix
def test_a_spectrum_gives_the_rank_of_its_matrix(case: KnownMatrix) -> None:
    assert numerical_rank(spectrum(case.matrix)) == numerical_rank(case.matrix)
    assert numerical_rank(spectrum(case.matrix), scale=1e200) == numerical_rank(case.matrix, scale=1e200)


@each_known_matrix
def test_singular_values_of_a_rotated_matrix_give_the_same_rank(case: KnownMatrix) -> None:
    size = len(case.eigenvalues)
    rotated = case.matrix @ random_orthogonal(size + 2, seed=3)[:size]
    found = numerical_rank(rotated)
    assert found.value == case.rank
    assert found.decidable
    assert found.size == size
    assert found.method == "singular values"


def test_smallest_kept_largest_dropped_and_gap_surround_the_cut() -> None:
    found = numerical_rank(np.diag([2.0, -0.5, 1e-15, -3e-15]))
    assert (found.value, found.smallest_kept, found.largest_dropped) == (2, 0.5, 3e-15)
    assert found.gap == pytest.approx(0.5 / 3e-15)


def test_gap_is_infinite_where_nothing_or_only_exact_zeros_are_dropped_or_nothing_is_kept() -> None:
    full = numerical_rank(np.diag([3.0, 1.0]))
    assert (full.value, full.gap, full.largest_dropped, full.smallest_kept) == (2, np.inf, 0.0, 1.0)
    exact = numerical_rank(np.diag([3.0, 1.0, 0.0]))
    assert (exact.value, exact.gap) == (2, np.inf)
    none = numerical_rank(np.diag([3e-15, 1e-15]), scale=1.0)
    assert (none.value, none.gap, none.smallest_kept, none.largest_dropped) == (0, np.inf, 0.0, 3e-15)
    assert none.decidable


@pytest.mark.parametrize(
    ("value", "kept", "decidable"),
    [
        (1e-9, True, True),
        (1.1e-12, True, True),
        (0.9e-12, False, False),
        (1.1e-13, False, False),
        (0.9e-13, False, True),
        (1e-15, False, True),
        (0.0, False, True),
    ],
)
def test_dropping_a_value_near_the_threshold_is_undecidable(value: float, kept: bool, decidable: bool) -> None:
    for matrix in (np.diag([1.0, value]), np.diag([-1.0, -value]), np.diag([1e-14, 1e-14 * value])):
        found = numerical_rank(matrix)
        assert found.value == 1 + kept
        assert found.decidable == decidable


def test_the_scale_of_the_loss_hessian_drops_what_its_own_norm_would_keep() -> None:
    noise = torch.diag(torch.tensor([3e-16, -1e-16], dtype=torch.float64))
    assert numerical_rank(noise).value == 2
    assert numerical_rank(noise, scale=1.0).value == 0
    carried = DenseOperator(noise, scale=1.0)
    assert numerical_rank(carried).value == 0
    assert numerical_rank(carried, scale=1e-16).value == 2
    assert numerical_rank(spectrum(carried)).value == 0
    assert numerical_rank(carried).scale == 1.0


def test_a_block_inherits_the_scale_of_the_whole() -> None:
    matrix = torch.diag(torch.tensor([1.0, 1.0, 1e-15, 1e-15], dtype=torch.float64))
    whole = DenseOperator(matrix, Layout((("first", (2,)), ("second", (2,)))), scale=1.0)
    assert numerical_rank(whole.block("second")).value == 0


@pytest.mark.parametrize("columns", [2, 3], ids=["square", "rectangular"])
def test_an_operator_that_is_not_symmetric_may_carry_a_scale_too(columns: int) -> None:
    class Scaled(LinearOperator):
        shape = (2, columns)
        scale = 1.0

        def matmat(self, vectors: torch.Tensor) -> torch.Tensor:
            return 1e-15 * vectors[:2]

    assert numerical_rank(Scaled()).value == 0
    assert numerical_rank(Scaled(), scale=1e-15).value == 2


def test_rounding_above_what_is_kept_makes_the_rank_undecidable() -> None:
    """Relative to a scale far below the norm, the noise of the eigenvalues themselves passes for rank."""
    matrix = KNOWN_MATRICES[1].matrix
    found = numerical_rank(matrix, scale=1e-6)
    assert found.value >= 3
    assert not found.decidable
    clear = Spectrum(np.array([1.0, 1e-3, 0.0]), "dense", True, np.zeros(0), 1.0, eigenvalue_error=1e-12)
    assert numerical_rank(clear).decidable
    assert not numerical_rank(replace(clear, eigenvalue_error=1e-2)).decidable


@pytest.mark.parametrize(("kept", "decidable"), [(2e-11, True), (2e-12, False)])
def test_what_is_kept_must_be_a_thousand_times_what_is_dropped(kept: float, decidable: bool) -> None:
    found = numerical_rank(np.diag([1.0, kept, 1e-14]))
    assert (found.value, found.decidable) == (2, decidable)


def test_the_default_tolerance_grows_with_the_rounding_bound_of_large_matrices() -> None:
    size = 6000
    eigenvalues = np.zeros(size)
    eigenvalues[0] = 1.0
    large = Spectrum(eigenvalues, "dense", True, np.zeros(0), 1.0)
    assert numerical_rank(large).threshold == pytest.approx(size * np.finfo(float).eps, rel=1e-12, abs=0)


def test_a_wider_tolerance_moves_the_threshold() -> None:
    matrix = np.diag([1.0, 8e-6, 1e-9])
    assert numerical_rank(matrix, relative_tolerance=1e-7).value == 2
    assert numerical_rank(matrix, relative_tolerance=1e-7).decidable
    assert not numerical_rank(matrix, relative_tolerance=0.9e-8).decidable
    assert numerical_rank(matrix, relative_tolerance=1e-3).value == 1


def test_rank_of_a_data_matrix_counts_independent_columns() -> None:
    columns = np.random.default_rng(0).standard_normal((50, 3))
    data = np.concatenate([columns, columns @ np.ones((3, 2)), np.zeros((50, 1))], axis=1)
    assert numerical_rank(data).value == 3
    assert numerical_rank(data.T).value == 3
    assert numerical_rank(data).size == 6


def test_a_square_array_that_is_not_symmetric_goes_through_its_singular_values() -> None:
    nilpotent = np.array([[0.0, 1.0], [0.0, 0.0]])
    found = numerical_rank(nilpotent)
    assert (found.value, found.method) == (1, "singular values")


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0)])
def test_an_empty_matrix_has_rank_zero(shape: tuple[int, int]) -> None:
    found = numerical_rank(np.zeros(shape))
    assert (found.value, found.gap, found.decidable, found.size) == (0, np.inf, True, 0)


def test_what_cannot_be_a_threshold_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"scale must be positive and finite; got 0\.0 for a matrix of norm 1"):
        numerical_rank(np.eye(2), scale=0.0)
    with pytest.raises(InvalidInput, match="scale must be positive and finite; got nan"):
        numerical_rank(np.eye(2), scale=np.nan)
    with pytest.raises(InvalidInput, match="scale must be positive and finite; got -2"):
        numerical_rank(np.zeros((2, 2)), scale=-2)
    with pytest.raises(InvalidInput, match=r"relative_tolerance must be between 0 and 1; got 1\.5"):
        numerical_rank(np.eye(2), relative_tolerance=1.5)
    assert numerical_rank(np.zeros((2, 2)), scale=0.0).value == 0


def test_a_partial_spectrum_is_refused() -> None:
    top = Spectrum(np.array([3.0, 2.0]), "lanczos", True, np.zeros(2), 3.0, size=10)
    with pytest.raises(InvalidInput, match="a rank needs the whole spectrum; this one holds 2 of 10"):
        numerical_rank(top)


def test_a_rank_survives_json_with_its_infinite_gap() -> None:
    found = numerical_rank(np.eye(3))
    assert found.gap == np.inf
    assert RankMeasurement.from_json(found.to_json()) == found


@given(
    size=st.integers(1, 15),
    rank=st.integers(0, 15),
    exponent=st.integers(-140, 140),
    seed=st.integers(0, 10**6),
)
def test_rank_of_a_sum_of_outer_products_is_found_at_any_scale(size: int, rank: int, exponent: int, seed: int) -> None:
    rank = min(rank, size)
    generator = np.random.default_rng(seed)
    basis = np.linalg.qr(generator.standard_normal((size, size)))[0][:, :rank]
    signed = generator.choice([-1.0, 1.0], rank) * generator.uniform(0.1, 10, rank)
    matrix = (basis * signed) @ basis.T * 10.0**exponent
    found = numerical_rank((matrix + matrix.T) / 2)
    assert found.value == rank
    assert found.decidable
