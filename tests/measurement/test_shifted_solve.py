"""Systems with a shifted matrix: solved, with the residual, or refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from known_spectra import KNOWN_MATRICES, NAMES, KnownMatrix

from hessmap.curvature.operator import DenseOperator
from hessmap.errors import InvalidInput
from hessmap.measurement import solve
from hessmap.results import LinearSolution

each_known_matrix = pytest.mark.parametrize("case", KNOWN_MATRICES, ids=NAMES)


@each_known_matrix
@pytest.mark.parametrize("relative_shift", [2.0, 1e-3, -0.37])
def test_the_solution_solves_the_shifted_system(case: KnownMatrix, relative_shift: float) -> None:
    matrix, shift = case.matrix, relative_shift * (case.norm or 1.0)
    right = np.random.default_rng(0).standard_normal((len(matrix), 3))
    found = solve(matrix, right, shift)
    shifted = matrix + shift * np.eye(len(matrix))
    assert found.solution.shape == right.shape
    assert np.abs(shifted @ found.solution - right).max(initial=0) <= 1e-10
    assert found.backward_error <= 1e-14
    is_positive = bool((case.eigenvalues + shift > 0).all())
    assert found.is_positive_definite == is_positive
    assert found.method == ("cholesky" if is_positive else "bunch-kaufman")


@each_known_matrix
def test_the_condition_is_that_of_the_known_spectrum_up_to_the_choice_of_norm(case: KnownMatrix) -> None:
    if not case.eigenvalues.size:
        return
    shift = 1e-3 * (case.norm or 1.0)
    magnitudes = np.abs(case.eigenvalues + shift)
    found = solve(case.matrix, np.ones(len(case.matrix)), shift)
    known = magnitudes.min() / magnitudes.max()
    assert known / len(magnitudes) / 1.01 <= found.reciprocal_condition <= 1.01 * known * len(magnitudes)


@each_known_matrix
def test_a_singular_shift_is_refused_in_words(case: KnownMatrix) -> None:
    for eigenvalue in case.eigenvalues[:1]:
        with pytest.raises(InvalidInput, match=r"H \+ shift I must be invertible in float64; with shift .* Choose a"):
            solve(case.matrix, np.ones(len(case.matrix)), -eigenvalue)


def test_a_matrix_with_a_kernel_is_refused_without_a_shift() -> None:
    with pytest.raises(InvalidInput, match="reciprocal condition number is about"):
        solve(KNOWN_MATRICES[1].matrix, np.ones(40))
    with pytest.raises(InvalidInput, match="reciprocal condition number is about 0"):
        solve(np.zeros((3, 3)), np.ones(3))


def test_vector_matrix_tensor_and_operator_are_taken() -> None:
    matrix = KNOWN_MATRICES[0].matrix
    right = np.arange(5.0)
    known = np.linalg.solve(matrix, right)
    for given_matrix in (matrix, torch.from_numpy(matrix), DenseOperator(torch.from_numpy(matrix))):
        found = solve(given_matrix, torch.from_numpy(right))
        assert found.solution == pytest.approx(known, rel=1e-12)
    columns = solve(matrix, np.stack([right, 2 * right], axis=1)).solution
    assert columns[:, 1] == pytest.approx(2 * known)
    assert np.array_equal(matrix, KNOWN_MATRICES[0].matrix)


def test_right_hand_sides_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"right-hand side must have 3 rows; got shape \(2,\)"):
        solve(np.eye(3), np.ones(2))
    with pytest.raises(InvalidInput, match=r"a right-hand side must be finite; entry \(1,\) is nan"):
        solve(np.eye(3), np.array([0.0, np.nan, 0.0]))
    with pytest.raises(InvalidInput, match="shift must be finite; got nan"):
        solve(np.eye(3), np.ones(3), np.nan)


def test_a_solution_survives_json() -> None:
    found = solve(np.eye(3), np.ones(3), 1.0)
    assert LinearSolution.from_json(found.to_json()) == found


@settings(deadline=None, max_examples=30)
@given(size=st.integers(1, 10), seed=st.integers(0, 10**6), shift=st.sampled_from([3.3, -3.3, 100.0]))
def test_the_solution_applied_to_the_matrix_gives_the_right_hand_side(size: int, seed: int, shift: float) -> None:
    generator = np.random.default_rng(seed)
    rotation = np.linalg.qr(generator.standard_normal((size, size)))[0]
    matrix = (rotation * generator.uniform(-3, 3, size)) @ rotation.T
    matrix = (matrix + matrix.T) / 2
    wanted = generator.standard_normal(size)
    found = solve(matrix, (matrix + shift * np.eye(size)) @ wanted, shift)
    assert found.solution == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize("scale", [1e-280, 1e-160, 1.0, 1e160, 1e300])
def test_the_backward_error_does_not_depend_on_the_scale(scale: float) -> None:
    """The squares of a solution of size 1e170 overflow, those of one of size 1e-290 vanish; its error must not."""
    matrix = np.diag([1.0, 2.0, 1e-12]) + 1e-13 * np.ones((3, 3))
    found = solve(scale * matrix, np.array([1.0, 2.0, 3.0]))
    solution = found.solution * scale
    residual = np.linalg.norm(matrix @ solution - [1.0, 2.0, 3.0])
    expected = residual / (np.linalg.norm(matrix) * np.linalg.norm(solution) + np.linalg.norm([1.0, 2.0, 3.0]))
    assert found.backward_error <= 1e-15
    assert found.backward_error == pytest.approx(expected, rel=1, abs=1e-17)
