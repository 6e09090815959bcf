"""Enclosures of smallest eigenvalues: known matrices, erf teachers, and what cannot be enclosed."""

from __future__ import annotations

from typing import Any

import flint
import numpy as np
import pytest

from hessmap.errors import InvalidInput
from hessmap.theory.teacher_student import TeacherStudent
from hessmap_research.studies.teacher.erf_full_rank import erf_hessian_balls, smallest_eigenvalue_enclosure


def rotated(eigenvalues: list[str]) -> flint.arb_mat:
    """A matrix with these eigenvalues, exactly: a rational reflection of the diagonal."""
    size = len(eigenvalues)
    normal = [flint.fmpq(place + 1, 3) for place in range(size)]
    length = sum(entry * entry for entry in normal)
    mirror = flint.fmpq_mat(
        size, size, [(i == j) - 2 * normal[i] * normal[j] / length for i in range(size) for j in range(size)]
    )
    diagonal = flint.fmpq_mat(size, size)
    for place, value in enumerate(eigenvalues):
        top, _, bottom = value.partition("/")
        diagonal[place, place] = flint.fmpq(int(top), int(bottom or 1))
    return flint.arb_mat(mirror * diagonal * mirror)


@pytest.mark.parametrize(
    ("eigenvalues", "smallest"),
    [
        (["3", "2", "1/7"], 1 / 7),
        (["1", f"1/{10**40}", "5"], 1e-40),
        (["1", "1", "1"], 1.0),
        (["2", "-1/3", "4"], -1 / 3),
    ],
)
def test_known_smallest_eigenvalues_are_enclosed(eigenvalues: list[str], smallest: float) -> None:
    before = flint.ctx.prec
    flint.ctx.prec = 300
    try:
        matrix = rotated(eigenvalues)
    finally:
        flint.ctx.prec = before
    found = smallest_eigenvalue_enclosure(matrix, bits=300)
    assert found.lower <= smallest <= found.upper
    assert found.upper - found.lower <= 1e-3 * abs(smallest)
    assert found.is_positive == (smallest > 0)
    assert flint.ctx.prec == before


@pytest.mark.parametrize(("inputs", "hidden", "seed"), [(2, 2, 2000), (4, 4, 4001), (3, 2, 5), (2, 5, 6)])
def test_balls_hold_the_float_hessian_and_its_smallest_eigenvalue(inputs: int, hidden: int, seed: int) -> None:
    network = TeacherStudent(inputs, hidden, "erf")
    teacher = network.draw(seed)
    hessian = network.population_hessian(teacher)
    balls = erf_hessian_balls(teacher.layers[0], teacher.layers[1][0])
    centres = np.array([float(entry.mid()) for entry in balls.entries()]).reshape(hessian.shape)
    np.testing.assert_allclose(centres, hessian, atol=1e-15)
    assert max(float(entry.rad()) for entry in balls.entries()) < 1e-60
    found = smallest_eigenvalue_enclosure(balls)
    smallest = np.linalg.eigvalsh(hessian)[0]
    assert found.is_positive
    assert found.lower - 1e-15 <= smallest <= found.upper + 1e-15


def test_full_rank_is_seen_where_float64_cannot_see_it() -> None:
    network = TeacherStudent(1, 8, "erf")
    teacher = network.draw(0)
    found = smallest_eigenvalue_enclosure(erf_hessian_balls(teacher.layers[0], teacher.layers[1][0]))
    assert 0 < found.lower < found.upper < 1e-20
    assert abs(np.linalg.eigvalsh(network.population_hessian(teacher))[0]) < 1e-15


@pytest.mark.parametrize("kind", ["equal rows", "opposite rows", "zero output", "zero row"])
def test_degenerate_teachers_are_not_called_full_rank(kind: str) -> None:
    first, second = np.array([[0.5, -1.0], [1.0, 0.25], [0.75, 1.5]]), np.array([1.0, -0.5, 2.0])
    if kind in ("equal rows", "opposite rows"):
        first[1] = first[0] * (1 if kind == "equal rows" else -1)
    elif kind == "zero output":
        second[1] = 0.0
    else:
        first[1] = 0.0
    found = smallest_eigenvalue_enclosure(erf_hessian_balls(first, second))
    assert not found.is_positive
    assert found.lower <= 0.0 <= found.upper + 1e-60


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: smallest_eigenvalue_enclosure(np.eye(2)), "must be a flint.arb_mat; got ndarray"),
        (lambda: smallest_eigenvalue_enclosure(flint.arb_mat(2, 3)), "must be square; it is 2 by 3"),
        (lambda: erf_hessian_balls([[1.0], [2.0]], [1.0]), "one entry for each row of W1"),
        (lambda: erf_hessian_balls([[1.0]], [1.0], bits=10), "bits must be an integer of at least 53; got 10"),
        (
            lambda: smallest_eigenvalue_enclosure(flint.arb_mat([[flint.arb(1, 1e30)]])),
            "balls must be small enough .* Make the matrix with more bits",
        ),
    ],
)
def test_bad_input_is_refused(call: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call()
