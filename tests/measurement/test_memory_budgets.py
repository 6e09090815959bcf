"""Eigenvalues within a budget of a few vectors: equal to LAPACK's to the tolerance, or an error with numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import hessmap as hm
from hessmap.errors import TooLarge
from hessmap.linalg import LinearOperator, available_bytes, checked_budget, default_budget

BLOCKS, WIDTH = 100, 100
SIZE = BLOCKS * WIDTH
VECTOR = 8 * SIZE


class BlockDiagonal(LinearOperator):
    """A hundred symmetric blocks, whose eigenvalues LAPACK computes one by one."""

    makes_new_images = True

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float64) -> None:
        drawn = torch.randn(BLOCKS, WIDTH, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        drawn = (drawn + drawn.mT) * torch.linspace(0.2, 1.0, BLOCKS, dtype=torch.float64)[:, None, None] ** 4
        self.blocks, self.dtype = drawn.to(dtype), dtype

    @property
    def shape(self) -> tuple[int, int]:
        return SIZE, SIZE

    def matmat(self, vectors: Tensor) -> Tensor:
        return (self.blocks @ vectors.reshape(BLOCKS, WIDTH, -1)).reshape(vectors.shape)

    @property
    def eigenvalues(self) -> np.ndarray:
        return np.sort(np.linalg.eigvalsh(self.blocks.double().numpy()).ravel())[::-1]


@pytest.fixture(scope="module")
def operator() -> BlockDiagonal:
    return BlockDiagonal()


@pytest.mark.parametrize("num_vectors", [4, 8, 16, 64])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
def test_sharpness_within_a_few_vectors(operator: BlockDiagonal, num_vectors: int, tolerance: float) -> None:
    found = hm.sharpness(operator, tolerance=tolerance, memory_budget=num_vectors * VECTOR)
    norm = np.abs(operator.eigenvalues).max()
    assert found.converged
    assert abs(found.value - operator.eigenvalues[0]) <= tolerance * norm
    assert found.residual <= tolerance * norm


@pytest.mark.parametrize("which", ["largest", "smallest", "magnitude"])
@pytest.mark.parametrize(("num_vectors", "method"), [(8, "three-term"), (16, None), (64, None)])
def test_eigenpairs_within_a_few_vectors(
    operator: BlockDiagonal, num_vectors: int, method: str | None, which: Any
) -> None:
    found = hm.top_eigenpairs(operator, 3, which=which, tolerance=1e-5, memory_budget=num_vectors * VECTOR)
    whole = operator.eigenvalues
    order = {"largest": whole[:3], "smallest": whole[-3:], "magnitude": whole[np.abs(whole).argsort()[-3:]]}[which]
    assert found.converged
    assert found.provenance is not None
    assert any("three-term" in note for note in found.provenance.notes) == (method is not None)
    norm = np.abs(whole).max()
    np.testing.assert_allclose(found.eigenvalues, np.sort(order)[::-1], atol=1e-5 * norm)
    vectors = torch.from_numpy(found.eigenvectors)
    misfits = operator.matmat(vectors).numpy() - found.eigenvectors * found.eigenvalues
    assert np.linalg.norm(misfits, axis=0).max() <= 1e-5 * norm * (1 + 1e-6)
    np.testing.assert_allclose(found.eigenvectors.T @ found.eigenvectors, np.eye(3), atol=1e-6)


@pytest.mark.parametrize("budget", [8, 16])
def test_copies_of_an_eigenvalue_are_found_within_a_few_vectors(budget: int) -> None:
    values = torch.cat([torch.ones(3), torch.linspace(0.9, 0.0, 297)]).double()
    operator = hm.as_operator(lambda vector: values * vector, 300)
    found = hm.top_eigenpairs(operator, 3, tolerance=1e-4, memory_budget=budget * 8 * 300)
    assert found.converged
    np.testing.assert_allclose(found.eigenvalues, 1.0, atol=1e-4)


@pytest.mark.parametrize("seed", range(8))
def test_a_result_that_ends_early_is_not_converged(operator: BlockDiagonal, seed: int) -> None:
    for budget in (4, 8):
        found = hm.sharpness(operator, tolerance=1e-6, max_products=12, memory_budget=budget * VECTOR, seed=seed)
        assert found.num_products <= 15
        assert not found.converged


def test_the_recurrence_in_float32_has_the_residual_of_its_format() -> None:
    operator = BlockDiagonal(dtype=torch.float32)
    found = hm.sharpness(operator, memory_budget=4 * VECTOR // 2)
    norm = np.abs(operator.eigenvalues).max()
    assert found.converged
    assert abs(found.value - operator.eigenvalues[0]) <= found.residual <= 1e-5 * norm


def test_the_vector_of_a_second_pass_is_the_eigenvector(operator: BlockDiagonal) -> None:
    found = hm.sharpness(operator, method="three_term", eigenvector=True)
    assert found.eigenvector is not None
    image = operator.matmat(torch.from_numpy(found.eigenvector)[:, None])[:, 0].numpy()
    assert np.linalg.norm(image - found.value * found.eigenvector) <= 1e-6 * np.abs(operator.eigenvalues).max()
    assert hm.sharpness(operator, method="three_term").eigenvector is None


@pytest.mark.parametrize("count", [5, 20])
def test_pairs_that_do_not_fit_are_an_error_with_bytes_and_an_alternative(operator: BlockDiagonal, count: int) -> None:
    with pytest.raises(
        TooLarge, match=rf"{count} eigenpairs .* take at least .* vectors\); the memory budget is .* Use"
    ):
        hm.top_eigenpairs(operator, count, memory_budget=(count + 2) * VECTOR)
    with pytest.raises(TooLarge, match="Use method='three_term'"):
        hm.top_eigenpairs(operator, count, memory_budget=(count + 4) * VECTOR, method="thick_restart")


def test_operators_that_change_are_not_converged() -> None:
    values, calls = torch.linspace(0, 1, 500, dtype=torch.float64), []

    def product(vector: Tensor) -> Tensor:
        calls.append(1)
        return values * vector * (1.0 if len(calls) < 12 else 1.5)

    found = hm.sharpness(hm.as_operator(product, 500), tolerance=1e-3, memory_budget=5 * 8 * 500, max_products=400)
    assert not found.converged


def test_a_density_within_three_vectors_is_that_of_a_stored_basis(operator: BlockDiagonal) -> None:
    options: dict[str, Any] = {"method": "quadrature", "num_probes": 2, "num_steps": 8}
    small = hm.density_estimate(operator, memory_budget=3 * VECTOR, **options)
    large = hm.density_estimate(operator, **options)
    assert (small.reorthogonalised, large.reorthogonalised) == (False, True)
    np.testing.assert_allclose(small.density, large.density, atol=0.05 * large.density.max())


def test_budgets_count_the_memory_of_the_machine() -> None:
    assert 0 < default_budget() <= max(2**26, available_bytes() // 2)
    assert checked_budget(float("inf")) > 2**60


def test_an_operator_states_its_budget() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    data = torch.randn(20, 3), torch.randint(2, (20,))
    problem = hm.Problem(model, "cross_entropy", *data, memory_budget=2**22)
    hessian = hm.loss_hessian(problem)
    assert 2**21 <= (hessian.memory_budget or 0) <= 2**22
    assert (hessian + 1.0).memory_budget == hessian.memory_budget == hessian.block("0.weight").memory_budget
