"""Spectra of quadratic teachers with orthonormal rows: characteristic polynomials over the rationals, and floats."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product

import flint
import numpy as np
import pytest

from hessmap.errors import InvalidInput
from hessmap.theory.teacher_student import TeacherStudent
from hessmap.theory.teacher_student.orthonormal import (
    orthonormal_quadratic_blocks,
    orthonormal_quadratic_spectrum,
)
from hessmap.theory.teacher_student.two_layers import quadratic_hessian

SIZES = [(inputs, hidden) for inputs, hidden in product(range(1, 6), range(1, 5)) if hidden <= inputs]


def to_flint(matrix: np.ndarray) -> flint.fmpq_mat:
    entries = [[Fraction(value) for value in row] for row in matrix]
    return flint.fmpq_mat([[flint.fmpq(value.numerator, value.denominator) for value in row] for row in entries])


def rotation(size: int, draw: random.Random) -> list[list[Fraction]]:
    """A rational orthogonal matrix: the Cayley transform (1 - S)(1 + S)^-1 of a skew one."""
    skew = [[Fraction(0)] * size for _ in range(size)]
    for i in range(size):
        for j in range(i):
            skew[i][j] = Fraction(draw.randint(-3, 3), draw.randint(1, 3))
            skew[j][i] = -skew[i][j]
    unit = flint.fmpq_mat([[int(i == j) for j in range(size)] for i in range(size)])
    part = to_flint(np.array(skew, dtype=object))
    found = (unit - part) * (unit + part).inv()
    return [[Fraction(int(found[i, j].p), int(found[i, j].q)) for j in range(size)] for i in range(size)]


@pytest.mark.parametrize(("inputs", "hidden"), SIZES)
@pytest.mark.parametrize("is_equal", [True, False], ids=["equal", "different"])
def test_characteristic_polynomials_over_the_rationals(inputs: int, hidden: int, is_equal: bool) -> None:
    draw = random.Random(f"{inputs} {hidden} {is_equal}")
    rows = rotation(inputs, draw)[:hidden]
    sizes = [Fraction(draw.randint(1, 4), draw.randint(1, 3)) for _ in range(hidden)]
    second = [draw.choice([-1, 1]) * (sizes[0] if is_equal else size) for size in sizes]
    epsilon = Fraction(draw.choice([-3, -1, 1, 2]), draw.randint(1, 3))
    whole = to_flint(quadratic_hessian(rows, [second], epsilon)).charpoly()
    found = flint.fmpq_poly([0, 1]) ** (hidden * (hidden - 1) // 2)
    for block in orthonormal_quadratic_blocks(inputs, second, epsilon):
        found *= to_flint(block.matrix).charpoly() ** block.multiplicity
    assert found == whole


@pytest.mark.parametrize("second", [[0.8] * 6, [0.8, -0.3, 1.2, 0.5, -0.5, 2.0]], ids=["equal", "different"])
def test_eigenvalues_of_population_hessians(second: list[float]) -> None:
    rows = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 9)))[0][:6]
    network = TeacherStudent(9, 6, (0, 1, 0.7))
    hessian = network.population_hessian(network.weights(rows, [second])).astype(float)
    values = orthonormal_quadratic_spectrum(9, second, 0.7)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(hessian)[::-1], atol=1e-12 * values[0])


def test_one_block_and_its_parts_agree() -> None:
    equal = orthonormal_quadratic_spectrum(7, [0.5] * 5, 1.3)
    nearly = orthonormal_quadratic_spectrum(7, [0.5] * 4 + [0.5 * (1 + 1e-15)], 1.3)
    np.testing.assert_allclose(equal, nearly, atol=1e-13 * equal[0])


@pytest.mark.parametrize(("scale", "epsilon"), [(1.0, 1.0), (0.5, 2.0), (2.0, 0.5)])
def test_the_limit_of_many_hidden_units(scale: float, epsilon: float) -> None:
    for hidden in (200, 400, 800):
        blocks = orthonormal_quadratic_blocks(hidden + 3, [(scale / hidden) ** 0.5] * hidden, epsilon)
        outside, once, copies, alone = blocks
        largest = hidden * epsilon**2 + (2 + 4 * scale) * epsilon**2 + 1
        assert abs(once.eigenvalues[0] - largest) < 40 / hidden
        mixed = np.sqrt(2) * epsilon
        pair = np.linalg.eigvalsh([[1 + scale, mixed], [mixed, 2 * epsilon**2]])[::-1]
        assert copies.multiplicity == hidden - 1
        np.testing.assert_allclose(copies.eigenvalues[:2], pair, atol=40 / hidden)
        assert copies.eigenvalues[2] < 40 / hidden
        assert outside.eigenvalues[0] == pytest.approx(scale, abs=40 / hidden)
        assert alone.eigenvalues[0] == pytest.approx(8 * epsilon**2 * scale / hidden)
        assert alone.multiplicity == hidden * (hidden - 3) // 2


def test_more_units_than_inputs_are_refused() -> None:
    with pytest.raises(InvalidInput, match="orthonormal rows need 1 to num_inputs hidden units; got 3 of 2"):
        orthonormal_quadratic_blocks(2, [1.0, 1.0, 1.0], 1.0)
