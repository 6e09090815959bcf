"""Operators for scipy and numpy, and what notebooks show of operators and problems."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import eigsh

import hessmap as hm
from hessmap.errors import InvalidInput


@pytest.fixture(scope="module")
def problem() -> hm.Problem:
    inputs, labels = hm.datasets.digits(num_samples=40)
    return hm.Problem(hm.FullyConnected((64, 4, 10), activation="tanh").build(seed=0), "cross_entropy", inputs, labels)


def test_scipy_finds_the_eigenvalues(problem: hm.Problem) -> None:
    H = hm.loss_hessian(problem)
    operator = H.to_scipy()
    assert (operator.shape, operator.dtype) == ((296, 296), np.float64)
    found = eigsh(operator, k=5, which="LA", return_eigenvectors=False)
    assert np.sort(found)[::-1] == pytest.approx(hm.top_eigenpairs(H, 5).eigenvalues, rel=1e-6)
    assert len(eigsh(H.to_scipy(), k=5)[0]) == 5


def test_scipy_has_the_products_of_rectangular_blocks(problem: hm.Problem) -> None:
    block = hm.loss_hessian(problem).block("0.weight", "2.weight")
    vector = np.random.default_rng(0).standard_normal(block.shape[1])
    assert block.to_scipy() @ vector == pytest.approx((block.to_dense().numpy() @ vector), abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("shape", [(296,), (296, 3)])
def test_arrays_in_arrays_out(problem: hm.Problem, shape: tuple[int, ...], dtype: type) -> None:
    H = hm.loss_hessian(problem)
    vectors = (3 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    found = H @ vectors
    assert isinstance(found, np.ndarray)
    assert (found.shape, found.dtype) == (shape, np.float64 if dtype is np.int64 else dtype)
    expected = (H @ torch.from_numpy(vectors.astype(np.float64))).numpy()
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    reversed_order = np.asfortranarray(vectors)[::-1]
    assert (H @ reversed_order[::-1]) == pytest.approx(found)


def test_what_is_no_real_array_is_refused(problem: hm.Problem) -> None:
    H = hm.loss_hessian(problem)
    with pytest.raises(InvalidInput, match="arrays of real numbers; got complex128"):
        H @ np.ones(296, dtype=complex)
    with pytest.raises(InvalidInput, match="needs vectors with 296 entries; got shape"):
        H @ np.ones(5)
    with pytest.raises(InvalidInput, match="multiplies tensors, arrays and operators; got list"):
        H @ [1.0]  # type: ignore[call-overload]
    rows = np.random.default_rng(0).normal(size=(2, 296))
    assert np.allclose(rows @ H, (H @ rows.T).T)


def test_notebooks_show_operators_and_problems(problem: hm.Problem) -> None:
    H = hm.loss_hessian(problem)
    assert "\n" not in repr(H)
    assert "\n" not in repr(problem)
    assert repr(H.block("0.weight")) == "DiagonalBlock(256×256, float64)"
    assert "0.weight" in H._repr_html_()
    assert "4×64" in H._repr_html_()
    shown = problem._repr_html_()
    assert "296 in 2 tensors" in shown
    assert "cross_entropy" in shown
