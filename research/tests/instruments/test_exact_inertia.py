"""Exact inertia: LDL^T over the rationals, Sturm sequences and sectors against other ways to count."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from flint import fmpz_mat, fmpz_poly

import hessmap as hm
from hessmap.theory.fully_connected.signature import functional_signature
from hessmap.theory.fully_connected.signature import loop_eigenvalues as counted
from hessmap_research.instruments import exact_inertia as exact
from hessmap_research.runner.registry import find


def random_symmetric(draw: random.Random, size: int, rank: int) -> fmpz_mat:
    factor = fmpz_mat([[draw.randint(-3, 3) for _ in range(rank)] for _ in range(size)])
    signs = fmpz_mat([[draw.choice((-1, 1)) * (i == j) for j in range(rank)] for i in range(rank)])
    return factor * signs * factor.transpose()


@pytest.mark.parametrize("seed", range(20))
def test_inertia_is_that_of_the_characteristic_polynomial(seed: int) -> None:
    """All roots are real, so Descartes' rule counts the positive ones exactly."""
    draw = random.Random(seed)
    matrix = random_symmetric(draw, size := draw.randint(1, 7), draw.randint(0, size))
    coefficients = [int(value) for value in matrix.charpoly().coeffs()]
    mirrored = [value * (-1) ** power for power, value in enumerate(coefficients)]
    changes = []
    for some in (coefficients, mirrored):
        signs = [value > 0 for value in some if value]
        changes.append(sum(a != b for a, b in pairwise(signs)))
    assert tuple(exact.inertia(matrix)) == tuple(changes)


def test_the_integer_hessian_is_that_of_the_library() -> None:
    draw = random.Random(0)
    widths = (2, 3, 2, 2)
    weights = [
        exact.integer_matrix([[draw.randint(-3, 3) for _ in range(before)] for _ in range(after)])
        for before, after in pairwise(widths)
    ]
    model = hm.FullyConnected(widths).build(seed=0)
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), weights, strict=True):
            parameter.copy_(torch.tensor([[int(value) for value in row] for row in weight.tolist()]))
    inputs, residuals = (torch.from_numpy(np.random.default_rng(1).integers(-2, 3, (4, 2)).astype(float)) for _ in "ab")
    residuals = residuals + torch.eye(4, 2).double()
    problem = hm.Problem(model, "squared", inputs, model(inputs).detach() - residuals)
    omega = (residuals.T @ inputs).long().tolist()
    mine = np.array(exact.functional_hessian(weights, exact.integer_matrix(omega)).tolist(), dtype=float)
    whole = hm.functional_hessian(problem).to_dense().numpy()
    scale = np.abs(whole).max() / np.abs(mine).max()
    np.testing.assert_allclose(whole, scale * mine, atol=1e-9 * np.abs(whole).max())


@pytest.mark.parametrize("seed", range(10))
def test_loops_are_counted_as_from_floats(seed: int) -> None:
    draw = random.Random(seed)
    size, num_layers = draw.randint(1, 5), draw.randint(2, 6)
    rows = [[draw.randint(-5, 5) for _ in range(size)] for _ in range(size)]
    found = exact.loop_eigenvalues(exact.integer_matrix(rows), num_layers)
    values = [value for value in np.linalg.eigvals(np.array(rows, dtype=float)) if abs(value) > 1e-9]
    if found is not None:
        assert found == counted(values, num_layers)


def test_sturm_counts_roots_and_borders_are_not_decided() -> None:
    assert exact.real_root_counts(fmpz_poly([-1, 0, 1])) == (1, 1)
    assert exact.real_root_counts(fmpz_poly([1, 0, 1])) == (0, 0)
    assert exact.real_root_counts(fmpz_poly([6, -5, 1])) == (2, 0)
    turned = exact.integer_matrix([[0, -1], [1, 0]])
    assert exact.loop_eigenvalues(turned, 3) is None  # angle pi / 2
    assert exact.loop_eigenvalues(turned, 4) is not None
    assert exact.loop_eigenvalues(exact.integer_matrix([[2, 1], [0, 2]]), 3) is None


def test_a_batch_of_the_study_counts_what_a_wrong_formula_misses() -> None:
    study = find("fcn/signature")
    case = {"family": "generic weights", "num_layers": 4, "num_networks": 5, "batch": 99}
    record = study.measure(case)
    assert record["right"]["signature"] == 5
    assert functional_signature(counted([1.0], 4), 4) != functional_signature(counted([-1.0], 4), 4)
