"""The stored Hessians of teacher-student problems, entry by entry, rationals as rationals."""

from __future__ import annotations

from fractions import Fraction
from math import pi, sqrt
from typing import Any

import flint
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import erf
from teacher_oracles import fractions

from golden_tables import each
from hessmap.theory.teacher_student import TeacherStudent
from hessmap.theory.teacher_student import two_layers as closed_forms
from teacher_golden import teacher_golden

Case = dict[str, Any]


def _student(case: Case, activation: Any) -> TeacherStudent:
    rows = case["inputs"]["W1"]
    return TeacherStudent(len(rows[0]), len(rows), activation)


def _rational(case: Case) -> tuple[list[Any], list[Any]]:
    return fractions(case["inputs"]["W1"]), fractions(case["inputs"]["W2"])


def _are_equal(found: np.ndarray, expected: Any) -> bool:
    return bool((found == np.array(fractions(expected), dtype=object)).all())


@each(teacher_golden("lin_H", "quad_H", "cubic_H"))
def test_polynomial_hessians_are_the_stored_fractions(case: Case) -> None:
    inputs = case["inputs"]
    coefficients = fractions(inputs["coef"]) if "coef" in inputs else [0, 1, Fraction(inputs.get("eps", "0"))]
    found = _student(case, coefficients).population_hessian(*_rational(case))
    assert all(isinstance(value, Fraction) for value in found.flat)
    assert _are_equal(found, case["expected"]["H"])
    if "coef" not in inputs:
        assert _are_equal(closed_forms.quadratic_hessian(*_rational(case), coefficients[2]), case["expected"]["H"])


@each(teacher_golden("quad_printed_diff"))
def test_printed_quadratic_hessian_is_off_by_the_stored_difference(case: Case) -> None:
    epsilon = Fraction(case["inputs"]["eps"])
    right = _student(case, (0, 1, epsilon)).population_hessian(*_rational(case))
    printed = closed_forms.printed_quadratic_hessian(*_rational(case), epsilon)
    assert np.abs(right - printed).max() == Fraction(case["expected"]["maxdiff"])


def test_printed_quadratic_hessian_is_right_where_every_outer_weight_is_one() -> None:
    rows = [[1, Fraction(2, 3)], [-1, 4]]
    printed = closed_forms.printed_quadratic_hessian(rows, [1, 1], 3)
    assert (printed == TeacherStudent(2, 2, (0, 1, 3)).population_hessian(rows, [1, 1])).all()


@each(teacher_golden("quad_rank"))
def test_rank_of_the_rational_hessian_is_the_stored_one(case: Case) -> None:
    found = _student(case, (0, 1, Fraction(case["inputs"]["eps"]))).population_hessian(*_rational(case))
    assert _exact_rank(found) == case["expected"]["rank"]


@each(teacher_golden("erf_H"))
def test_error_function_hessian_is_the_stored_one(case: Case) -> None:
    weights = (case["inputs"]["W1"], case["inputs"]["W2"])
    for found in (_student(case, "erf").population_hessian(*weights), closed_forms.error_function_hessian(*weights)):
        assert np.abs(found - np.array(case["expected"]["H"])).max() < case["tol"]


@each(teacher_golden("erf_Sigma"))
def test_covariance_under_two_tilts_is_the_stored_one(case: Case) -> None:
    u, v = (np.array(case["inputs"][name]) for name in "uv")
    found = closed_forms.tilted_covariance(u, v)
    assert np.abs(found - np.array(case["expected"]["Sigma"])).max() < case["tol"]
    assert 1 / np.linalg.det(found) == pytest.approx(case["expected"]["det"], abs=case["tol"])


@each(teacher_golden("erf_I"))
def test_integral_of_two_error_functions_is_the_stored_one(case: Case) -> None:
    a, b = case["inputs"]["a"], case["inputs"]["b"]
    found = closed_forms.error_function_integral(a, b)
    assert found == pytest.approx(case["expected"]["I"], abs=case["tol"])
    integral, _ = quad(lambda x: erf(x) * erf(a * x) * np.exp(-((b * x) ** 2)), -np.inf, np.inf)
    assert found == pytest.approx(integral, abs=1e-8)
    above, below = (closed_forms.error_function_integral(a + move, b) for move in (1e-5, -1e-5))
    slope = (above - below) / 2e-5
    assert slope == pytest.approx(case["expected"]["dIda"], abs=1e-9)
    assert abs(slope - case["expected"]["dIda"] * sqrt(pi) / 2) > 1e-3  # the printed one


@each(teacher_golden("lin_spec", "lin_bias_spec"))
def test_linear_hessian_has_the_stored_eigenvalues(case: Case) -> None:
    rows, factors = _rational(case)
    has_bias = "b" in case["inputs"]
    student = TeacherStudent(len(rows[0]), len(rows), hidden_bias=has_bias)
    bias = fractions(case["inputs"]["b"]) if has_bias else None
    hessian = student.population_hessian(student.weights(rows, factors, hidden_bias=bias)).astype(float)
    eigenvalues = np.linalg.eigvalsh(hessian)[::-1]
    expected = case["expected"]["nonzero"]
    assert eigenvalues[: len(expected)] == pytest.approx(expected, abs=case["tol"])
    assert np.abs(eigenvalues[len(expected) :]).max() < 1e-12


@each(teacher_golden("erf_lmin"))
def test_smallest_eigenvalue_under_the_error_function_is_the_stored_one(case: Case) -> None:
    size, seed = case["inputs"]["N"], case["inputs"]["seed"]
    student = TeacherStudent(size, size, "erf")
    eigenvalues = np.linalg.eigvalsh(student.population_hessian(student.draw(1000 * size + seed)))
    assert eigenvalues[0] == pytest.approx(case["expected"]["lmin"], abs=case["tol"])


@each(teacher_golden("erf_bulk"))
def test_largest_gap_under_the_error_function_is_at_the_number_of_inputs(case: Case) -> None:
    inputs, hidden = case["inputs"]["Ni"], case["inputs"]["Nh"]
    student = TeacherStudent(inputs, hidden, "erf")
    positions = []
    for seed in case["inputs"]["seeds"]:
        top = np.linalg.eigvalsh(student.population_hessian(student.draw(seed)))[::-1][: max(inputs, hidden) + 5]
        positions.append(int(np.argmax(top[:-1] / top[1:])) + 1)
    assert positions == case["expected"]["position"] == [inputs] * len(positions)


@each(teacher_golden("over_"))
def test_student_with_extra_units_has_the_stored_rank(case: Case) -> None:
    name, inputs, hidden, width, mode = case["inputs"]["key"].split(",")
    coefficients = {"lin": (0, 1), "quad": (0, 1, 1), "cubic": (0, 1, 1, 1)}[name]
    teacher = _integer_teacher(int(inputs), int(hidden))
    rows, factors = _extended(*teacher, int(width), mode)
    student = TeacherStudent(int(inputs), int(width), coefficients)
    assert student.population_loss((rows, factors), teacher) == 0
    assert _exact_rank(student.population_hessian(rows, factors)) == case["expected"]["rank"]


def _integer_teacher(inputs: int, hidden: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    return generator.integers(-9, 10, size=(hidden, inputs)), generator.integers(1, 10, size=hidden)


def _extended(rows: np.ndarray, factors: np.ndarray, width: int, mode: str) -> tuple[Any, Any]:
    """The teacher with extra units that leave the function as it is."""
    extra = width - len(factors)
    fresh = np.random.default_rng(4).integers(-9, 10, size=(extra, rows.shape[1]))
    if mode == "split":  # the last unit twice, its outer weight in two parts
        last = Fraction(int(factors[-1]), extra + 1)
        return np.concatenate([rows, *[rows[-1:]] * extra]), [*map(int, factors[:-1]), *[last] * (extra + 1)]
    new_rows = fresh if mode == "w2zero" else 0 * fresh
    new_factors = np.arange(1, extra + 1) if mode == "w1zero" else np.zeros(extra, dtype=int)
    return np.concatenate([rows, new_rows]), np.concatenate([factors, new_factors])


def _exact_rank(matrix: np.ndarray) -> int:
    entries = [[flint.fmpq(value.numerator, value.denominator) for value in row] for row in matrix]
    return int(flint.fmpq_mat(entries).rank())
