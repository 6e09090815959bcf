"""What is said to have converged has: at every scale of a matrix, and only of an operator that stays the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from hessmap.linalg.operator import SymmetricOperator
from hessmap.measurement import numerical_rank, sharpness, spectrum, top_eigenpairs
from hessmap.measurement.eigenpairs import largest_ritz_value
from known_spectra import Counted, Floats, rotated

EIGENVALUES = np.concatenate([[7.0, 7.0, 7.0, 3.0, 2.5], np.linspace(-1, 1, 20)[:-5], np.zeros(10), [-5.0, -5.0]])
DESCENDING = np.sort(EIGENVALUES)[::-1]
EXPONENTS = [-322, -320, -317, -315, -312, -308, -305, -300, -250, -200, -170, -150, 150, 200, 300, 306]
LAST_DIGIT = 5e-324


def over(values: Floats | float, exponent: int) -> Floats:
    """In two steps: 1e-322 has no reciprocal."""
    half = exponent // 2
    return np.asarray(values) * 10.0**-half * 10.0 ** -(exponent - half)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("form", [np.asarray, Counted])
def test_converged_eigenvalues_are_within_the_tolerance(exponent: int, form: Callable[..., object]) -> None:
    found = top_eigenpairs(form(rotated(EIGENVALUES) * 10.0**exponent), 5)
    error = np.abs(over(found.eigenvalues, exponent) - DESCENDING[:5]).max() / 7
    assert found.converged == (exponent >= -315)
    assert found.converged or any("digits" in note for note in found.provenance.notes)
    assert error <= max(found.tolerance, float(over(LAST_DIGIT, exponent)))


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_residuals_and_errors_of_a_whole_spectrum_hold(exponent: int) -> None:
    matrix = rotated(EIGENVALUES) * 10.0**exponent
    found = spectrum(matrix, vectors=True)
    exact = over(matrix, exponent) @ found.eigenvectors - found.eigenvectors * over(found.eigenvalues, exponent)
    rounding = 1e-14 + 40 * float(over(LAST_DIGIT, exponent))
    assert over(found.residuals, exponent) == pytest.approx(np.linalg.norm(exact, axis=0), abs=rounding)
    true = np.sort(np.linalg.eigvalsh(over(matrix, exponent)))[::-1]
    assert np.abs(over(found.eigenvalues, exponent) - true).max() <= over(found.eigenvalue_error, exponent) + 1e-15
    rank = numerical_rank(matrix)
    assert not rank.decidable or rank.value == np.count_nonzero(EIGENVALUES)
    assert rank.decidable == (exponent >= -308)


@pytest.mark.parametrize("exponent", [-38, -36, -30, 30])
def test_an_operator_in_float32_has_all_digits_down_to_its_smallest_numbers(exponent: int) -> None:
    narrow = ScaledBeforehand(torch.from_numpy(rotated(EIGENVALUES)).float(), float(10.0**exponent))
    found = top_eigenpairs(narrow, 3)
    assert found.converged
    assert np.abs(over(found.eigenvalues, exponent) - 7).max() < 1e-4


class ScaledBeforehand(SymmetricOperator):
    """A matrix in float32 whose vectors are scaled, so that its entries keep their digits."""

    dtype = torch.float32

    def __init__(self, matrix: Tensor, scale: float) -> None:
        self.matrix, self.scale_of_vectors = matrix, scale

    @property
    def size(self) -> int:
        return len(self.matrix)

    def matmat(self, vectors: Tensor) -> Tensor:
        return self.matrix @ (vectors * self.scale_of_vectors)


class Changing(Counted):
    """A matrix times one plus a number that depends on how many products there were."""

    def __init__(self, matrix: Floats, change: Callable[[int], float]) -> None:
        super().__init__(matrix)
        self.calls, self.change = 0, change

    def matmat(self, vectors: Tensor) -> Tensor:
        self.calls += 1
        return (1 + self.change(self.calls)) * super().matmat(vectors)


CHANGES = {
    "grows": lambda call: 1e-4 * call,
    "grows slowly": lambda call: 1e-6 * call,
    "swings": lambda call: 1e-5 * np.sin(call),
    "another one later": lambda call: 1e-3 * (call > 5),
    "two by turns": lambda call: 1e-3 * (call % 2),
    "once": lambda call: 1e-2 * (call == 4),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("size", [35, 300])
def test_an_operator_that_changes_between_products_does_not_converge(size: int, change: Callable[[int], float]) -> None:
    matrix = rotated(np.concatenate([EIGENVALUES[:5], np.linspace(-1, 1, size - 5)]))
    found = top_eigenpairs(Changing(matrix, change), 3, max_products=600)
    assert not found.converged
    assert not sharpness(Changing(matrix, change), max_products=600).converged
    assert any(note.startswith("not converged: ") for note in found.provenance.notes) or found.num_products >= 600


def test_the_quick_value_of_a_changing_operator_shows_it_in_its_residual() -> None:
    matrix = rotated(EIGENVALUES)
    assert largest_ritz_value(Counted(matrix)).converged
    assert not largest_ritz_value(Changing(matrix, lambda call: 0.01 * call)).converged


def test_a_change_below_the_tolerance_is_no_change() -> None:
    found = top_eigenpairs(Changing(rotated(EIGENVALUES), lambda call: 1e-13 * call), 3)
    assert found.converged
    assert found.eigenvalues == pytest.approx(7.0, rel=1e-8)
