"""Sums over eigenvalues count what rounding may have done to them; solutions of tiny systems are found."""

from __future__ import annotations

import numpy as np
import pytest

import hessmap as hm
from known_spectra import rotated

PLACES = np.arange(30)
CUT = np.where(PLACES < 5, 1.0, np.where(PLACES < 10, 1e-6, 0.0))


@pytest.mark.parametrize("num_steps", [64, 10])
def test_an_epsilon_below_the_rounding_leaves_open_which_eigenvalues_are_zero(num_steps: int) -> None:
    """Ten are not, and thirty were counted without a doubt."""
    found = hm.measurement.effective_dimension_estimate(rotated(CUT), 1e-20, num_steps=num_steps, relative_error=0.1)
    assert found.interval[0] <= 10 <= found.interval[1]


def test_eigenvalues_at_the_cut_are_a_doubt_of_the_rank() -> None:
    found = hm.measurement.rank_estimate(rotated(CUT), relative_tolerance=1e-6)
    assert found.interval[0] <= 5 <= 10 <= found.interval[1]
    assert hm.measurement.rank_estimate(rotated(CUT), relative_tolerance=1e-3).interval == pytest.approx((5, 5))


@pytest.mark.parametrize("size", [1e-300, 1.0])
def test_a_system_as_small_as_its_right_side_is_solved(size: float) -> None:
    """It was refused, because a product was not finite."""
    values = 1 / (1.0 + PLACES)
    found = hm.measurement.krylov_solve(size * rotated(values), size * np.ones(30))
    assert found.converged
    assert rotated(values) @ found.solution == pytest.approx(np.ones(30), abs=1e-6)


def test_a_solution_that_is_no_number_is_refused() -> None:
    """Zeros were called converged."""
    with pytest.raises(hm.errors.InvalidInput, match="must not underflow"):
        hm.measurement.krylov_solve(1e300 * np.eye(3), 1e-300 * np.ones(3))
    with pytest.raises(hm.errors.InvalidInput, match="must be a finite number"):
        hm.measurement.krylov_solve(1e-300 * np.eye(3), 1e300 * np.ones(3))
