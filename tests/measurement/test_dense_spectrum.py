"""Eigenvalues, eigenvectors and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st

from example_shares import share_of_examples
from hessmap.errors import InvalidInput, TooLarge
from hessmap.linalg.operator import DenseOperator
from hessmap.linalg.vectors import asymmetry
from hessmap.measurement import spectrum
from hessmap.records import Spectrum
from known_spectra import KNOWN_MATRICES, NAMES, KnownMatrix, rotated

each_known_matrix = pytest.mark.parametrize("case", KNOWN_MATRICES, ids=NAMES)


@each_known_matrix
def test_eigenvalues_are_the_known_ones_in_descending_order(case: KnownMatrix) -> None:
    found = spectrum(case.matrix)
    assert found.converged
    assert found.method == "dense"
    assert (np.diff(found.eigenvalues) <= 0).all()
    assert np.abs(found.eigenvalues - case.eigenvalues).max(initial=0) <= case.rounding
    assert found.scale == pytest.approx(case.norm, rel=1e-12, abs=0)


@each_known_matrix
def test_the_stated_error_bound_holds_for_a_matrix_known_to_the_last_digit(case: KnownMatrix) -> None:
    """A direct sum of 2 x 2 blocks with entries of few bits has eigenvalues that are known without rounding."""
    pairs = np.array([[3.0, 1.0], [1.0, 3.0]])
    matrix = np.kron(np.diag(np.sign(case.eigenvalues)), pairs)
    found = spectrum(matrix)
    known = np.sort(np.kron(np.sign(case.eigenvalues), [4.0, 2.0]))[::-1]
    assert found.eigenvalue_error is not None
    assert np.abs(found.eigenvalues - known).max(initial=0) <= found.eigenvalue_error


@each_known_matrix
def test_eigenvectors_are_orthonormal_and_their_residuals_are_what_is_reported(case: KnownMatrix) -> None:
    found = spectrum(case.matrix, vectors=True)
    vectors, size = found.eigenvectors, len(case.eigenvalues)
    assert vectors is not None
    assert np.abs(vectors.T @ vectors - np.eye(size)).max(initial=0) < 1e-13
    assert np.abs((vectors * found.eigenvalues) @ vectors.T - case.matrix).max(initial=0) <= case.rounding
    assert found.residuals.shape == (size,)
    assert found.residuals.max(initial=0) <= case.rounding
    assert np.abs(found.eigenvalues - spectrum(case.matrix).eigenvalues).max(initial=0) <= case.rounding


def test_residuals_are_measured_and_not_taken_for_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eigenvalues that are off by 1e-3 leave just that."""
    exact = scipy.linalg.eigh
    shifted = lambda *given, **options: (exact(*given, **options)[0] + 1e-3, exact(*given, **options)[1])  # noqa: E731
    monkeypatch.setattr(scipy.linalg, "eigh", shifted)
    found = spectrum(rotated(np.array([3.0, 2.0, 1.0, -4.0])), vectors=True)
    assert found.residuals == pytest.approx(np.full(4, 1e-3), rel=1e-9)


def test_residuals_are_empty_without_vectors() -> None:
    found = spectrum(np.eye(3))
    assert found.eigenvectors is None
    assert found.residuals.size == 0


def test_tensor_array_and_operator_give_the_same_spectrum() -> None:
    matrix = KNOWN_MATRICES[5].matrix
    tensor = torch.from_numpy(matrix)
    assert spectrum(matrix) == spectrum(tensor) == spectrum(DenseOperator(tensor))
    assert spectrum(tensor.clone().requires_grad_()) == spectrum(matrix)


def test_the_given_matrix_is_left_as_it_was() -> None:
    matrix = KNOWN_MATRICES[1].matrix
    before = matrix.copy()
    spectrum(matrix)
    spectrum(matrix, vectors=True)
    assert np.array_equal(matrix, before)


def test_integer_matrices_are_taken_exactly() -> None:
    assert spectrum(np.array([[2, 1], [1, 2]])).eigenvalues == pytest.approx([3, 1])


def test_scale_is_the_operators_own_unless_it_carries_one_or_one_is_given() -> None:
    matrix = torch.diag(torch.tensor([2.0, -3.0], dtype=torch.float64))
    assert spectrum(matrix).scale == 3
    assert spectrum(DenseOperator(matrix, scale=50.0)).scale == 50
    assert spectrum(DenseOperator(matrix, scale=50.0), scale=7.0).scale == 7


def test_rounding_asymmetry_is_averaged_and_enters_the_error_bound() -> None:
    matrix = KNOWN_MATRICES[0].matrix
    skewed = matrix.copy()
    skewed[0, 1] += 1e-11
    found = spectrum(skewed)
    averaged = spectrum((skewed + skewed.T) / 2)
    assert np.array_equal(found.eigenvalues, averaged.eigenvalues)
    assert found.eigenvalue_error is not None
    assert averaged.eigenvalue_error is not None
    # ||(H - H^T) / 2|| of one pair of entries that differ by 1e-11
    assert found.eigenvalue_error - averaged.eigenvalue_error == pytest.approx(1e-11 / 2**0.5, rel=1e-3, abs=0)


@pytest.mark.parametrize("size", [1, 5, 256, 600])
def test_asymmetry_is_measured_over_all_tiles(size: int) -> None:
    matrix = np.random.default_rng(0).standard_normal((size, size))
    known = np.linalg.norm(matrix - matrix.T) / 2 / np.linalg.norm(matrix)
    assert asymmetry(matrix) == pytest.approx(known, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e-14, 1.0, 1e14, 1e200])
def test_an_asymmetric_matrix_is_refused_at_any_scale(scale: float) -> None:
    matrix = np.eye(300) * scale
    matrix[290, 3] = 1e-6 * scale
    with pytest.raises(InvalidInput, match=r"a measurement needs a symmetric matrix; .*\(H \+ H.T\) / 2"):
        spectrum(matrix)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_entry_that_is_not_finite_is_named(bad: float) -> None:
    matrix = np.eye(4)
    matrix[2, 1] = matrix[1, 2] = bad
    with pytest.raises(InvalidInput, match=rf"must be finite; entry \(1, 2\) is {bad}"):
        spectrum(matrix)


def test_what_is_no_square_float64_matrix_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"square matrix; got shape \(2, 3\)"):
        spectrum(np.zeros((2, 3)))
    with pytest.raises(InvalidInput, match=r"two dimensions; got shape \(4,\)"):
        spectrum(np.zeros(4))
    with pytest.raises(InvalidInput, match="must be float64; got float32"):
        spectrum(torch.eye(3))
    with pytest.raises(InvalidInput, match="a measured matrix must be real; got complex128"):
        spectrum(np.eye(3) * 1j)
    with pytest.raises(InvalidInput, match="must be a tensor or an array; got list"):
        spectrum([[1.0]])  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="scale must be finite and not negative; got -1"):
        spectrum(np.eye(2), scale=-1.0)


def test_places_without_a_value_are_not_taken_for_the_values_below_the_mask() -> None:
    matrix = np.ma.masked_array(np.eye(3), mask=np.eye(3, dtype=bool))
    with pytest.raises(InvalidInput, match=r"must not contain masked entries; .*masked array.* Call \.filled\(value\)"):
        spectrum(matrix)
    assert spectrum(np.ma.masked_array(np.eye(3), mask=False)).eigenvalues.tolist() == [1.0, 1.0, 1.0]


def test_a_spectrum_that_does_not_fit_the_memory_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessmap.linalg.devices.available_bytes", lambda device=None: 2 * 8 * 30**2)
    spectrum(np.eye(30))
    with pytest.raises(
        TooLarge, match=r"a matrix of size 30 must fit into memory \(14\.1 KiB available\); it needs 28\.1 KiB"
    ):
        spectrum(np.eye(30), vectors=True)


def test_a_spectrum_survives_json() -> None:
    found = spectrum(KNOWN_MATRICES[2].matrix)
    assert Spectrum.from_json(found.to_json()) == found


@share_of_examples(0.5)
@given(size=st.integers(1, 12), seed=st.integers(0, 10**6), shift=st.integers(-5, 5))
def test_adding_a_multiple_of_the_identity_moves_every_eigenvalue(size: int, seed: int, shift: int) -> None:
    noise = np.random.default_rng(seed).standard_normal((size, size))
    matrix = noise + noise.T
    moved = spectrum(matrix + shift * np.eye(size))
    assert moved.eigenvalues == pytest.approx(spectrum(matrix).eigenvalues + shift, abs=1e-12)


def test_reversed_and_read_only_arrays_have_their_spectrum() -> None:
    diagonal = np.diag([3.0, 2.0, -1.0])
    diagonal.flags.writeable = False

    assert spectrum(diagonal).eigenvalues.tolist() == [3.0, 2.0, -1.0]
    assert spectrum(diagonal[::-1, ::-1]).eigenvalues.tolist() == [3.0, 2.0, -1.0]
