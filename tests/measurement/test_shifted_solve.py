"""Systems with a shifted matrix: solved, with the residual, or refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from example_shares import share_of_examples
from hessmap.errors import InvalidInput
from hessmap.linalg.operator import DenseOperator
from hessmap.measurement import krylov_solve, solve
from hessmap.records import LinearSolution
from known_spectra import KNOWN_MATRICES, NAMES, KnownMatrix, rotated

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
        with pytest.raises(InvalidInput, match=r"H \+ shift\*I is numerically singular \(rcond .*\); change"):
            solve(case.matrix, np.ones(len(case.matrix)), -eigenvalue)


def test_a_matrix_with_a_kernel_is_refused_without_a_shift() -> None:
    with pytest.raises(InvalidInput, match=r"numerically singular \(rcond"):
        solve(KNOWN_MATRICES[1].matrix, np.ones(40))
    with pytest.raises(InvalidInput, match=r"numerically singular \(rcond 0\)"):
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


@share_of_examples(0.5)
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


def with_eigenvalues(values: list[float], scale: float = 1.0, seed: int = 3) -> np.ndarray:
    return rotated(scale * np.array(values), seed)


CANCELLED = {
    "identity": (with_eigenvalues([1.0] * 60), -1.0),
    "identity of another sign": (with_eigenvalues([-2.5] * 40), 2.5),
    "one eigenvalue of many": (with_eigenvalues([5.0, 3.0, 3.0, 1.0, -2.0, 0.5]), -3.0),
    "an eigenvalue to three units of rounding": (with_eigenvalues([5.0, 1.0, 4.0]), -1.0 * (1 + 3e-16)),
    "rank 4 of 30": (with_eigenvalues([4.0, 3.0, 2.0, 1.0] + [0.0] * 26), 0.0),
    "indefinite, rank 2 of 5": (with_eigenvalues([4.0, -3.0, 0.0, 0.0, 0.0]), 0.0),
    "one number": (np.array([[0.1 + 0.2]]), -0.3),
    "one number, exactly": (np.array([[-7.0]]), 7.0),
    "zero": (np.zeros((4, 4)), 0.0),
    "a large norm beside the eigenvalue": (np.diag([1e6, 1.0, 1.0]), -1.0 - 1e-11),
}


@pytest.mark.parametrize("exponent", [-1000, -300, 0, 300, 1000])
@pytest.mark.parametrize("name", CANCELLED)
def test_what_a_shift_leaves_of_rounding_is_no_system(name: str, exponent: int) -> None:
    matrix, shift = (np.ldexp(part, exponent) for part in CANCELLED[name])
    with pytest.raises(
        InvalidInput, match=r"H \+ shift\*I is numerically singular \(rcond [0-9e.-]+\); change the shift"
    ):
        solve(matrix, np.ones(len(matrix)), float(shift))


SOLVABLE = {
    "near an eigenvalue": (with_eigenvalues([1.0] * 20), -1.0 + 1e-9),
    "a small eigenvalue": (with_eigenvalues([1.0, 0.5, 1e-10]), 0.0),
    "one number": (np.array([[0.3]]), -0.2),
    "nothing but a shift": (np.zeros((3, 3)), 2.0),
    "a shift far above the matrix": (with_eigenvalues([1.0, -2.0, 0.0]), 1e20),
}


@pytest.mark.parametrize("exponent", [-1020, -300, 0, 300, 1010])
@pytest.mark.parametrize("name", SOLVABLE)
def test_what_is_above_rounding_is_solved_at_any_scale(name: str, exponent: int) -> None:
    matrix, shift = SOLVABLE[name]
    right = np.ldexp(np.arange(1.0, 1.0 + len(matrix)), exponent)  # of the size of the matrix, so that x has none
    if name == "a shift far above the matrix" and exponent > 900:
        return  # the shift itself is no number
    found = solve(np.ldexp(matrix, exponent), right, float(np.ldexp(shift, exponent)))
    expected = np.linalg.solve(matrix + shift * np.eye(len(matrix)), np.ldexp(right, -exponent))
    assert found.solution == pytest.approx(expected, rel=1e-5)
    assert found.backward_error <= 1e-15
    smallest = 1 / np.abs(np.linalg.inv(matrix + shift * np.eye(len(matrix)))).sum(0).max()
    size = np.abs(matrix).sum(0).max() + abs(shift)
    assert found.reciprocal_condition == pytest.approx(smallest / size, rel=2)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_an_operator_in_float32_is_singular_to_its_own_rounding(scale: float) -> None:
    matrix = torch.from_numpy(scale * with_eigenvalues([3.0, 2.0, 2.0, 1.0]))
    wide, narrow = DenseOperator(matrix), DenseOperator(matrix.float())
    right = scale * np.ones(4)
    for shift in (-2.0 * scale, -(2.0 + 1e-7) * scale):
        with pytest.raises(InvalidInput, match="numerically singular"):
            solve(narrow, right, shift)
    assert solve(wide, right, -(2.0 + 1e-7) * scale).reciprocal_condition == pytest.approx(2e-8, rel=0.5)
    assert solve(narrow, right, -2.01 * scale).reciprocal_condition > 1e-4


def test_right_hand_sides_have_their_own_scales() -> None:
    columns = np.stack([1e-200 * np.ones(3), 1e200 * np.ones(3), np.zeros(3)], 1)
    found = solve(1e100 * np.eye(3), columns, 1e100)
    assert found.solution == pytest.approx(
        np.stack([5e-301 * np.ones(3), 5e99 * np.ones(3), np.zeros(3)], 1), rel=1e-14
    )
    with pytest.raises(InvalidInput, match="a solution must be a finite number"):
        solve(1e-200 * np.eye(3), 1e200 * np.ones(3))
    with pytest.raises(InvalidInput, match="a solution must not underflow"):
        solve(1e200 * np.eye(3), 1e-200 * np.ones(3))


@pytest.mark.parametrize("form", ["array", "operator"])
@pytest.mark.parametrize("exponent", [-900, 0, 900])
@pytest.mark.parametrize("name", CANCELLED)
def test_products_alone_solve_nothing_that_is_rounding(name: str, exponent: int, form: str) -> None:
    matrix, shift = (np.ldexp(part, exponent) for part in CANCELLED[name])
    given_matrix = matrix if form == "array" else DenseOperator(torch.from_numpy(matrix))
    right = np.random.default_rng(0).standard_normal((len(matrix), 2))
    found = krylov_solve(given_matrix, right, float(shift))
    assert not found.converged
    assert found.relative_residuals.min() > 1e-3
    assert np.abs(np.ldexp(found.solution, exponent)).max() <= 1e3


@pytest.mark.parametrize("name", ["identity", "one eigenvalue of many", "rank 4 of 30"])
def test_products_in_float32_solve_nothing_that_is_rounding(name: str) -> None:
    matrix, shift = CANCELLED[name]
    found = krylov_solve(
        DenseOperator(torch.from_numpy(matrix).float()), np.random.default_rng(0).normal(size=len(matrix)), shift
    )
    assert not found.converged
    assert np.abs(found.solution).max() <= 1e3


@pytest.mark.parametrize("name", SOLVABLE)
def test_products_alone_solve_what_is_above_rounding(name: str) -> None:
    matrix, shift = SOLVABLE[name]
    right = np.arange(1.0, 1.0 + len(matrix))
    found = krylov_solve(matrix, right, shift, tolerance=1e-6)
    assert found.converged
    expected = np.linalg.solve(matrix + shift * np.eye(len(matrix)), right)
    assert found.solution == pytest.approx(expected, rel=1e-4)
