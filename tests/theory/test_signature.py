"""Signs of the eigenvalues of H_f and H_L: the formulas against dense eigenvalues of Hessians written out by hand."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from hessmap.errors import InvalidInput
from hessmap.theory.fully_connected.linear import functional_rank
from hessmap.theory.fully_connected.signature import (
    Inertia,
    LoopEigenvalues,
    critical_point_index_upper_bound,
    functional_inertia,
    functional_signature,
    loop_eigenvalues,
    one_hidden_critical_point_index,
)

WIDTHS = [(3, 3, 3), (3, 4, 3, 3), (2, 3, 2, 3, 2), (2, 2, 2, 2, 2, 2), (3, 3, 1, 3)]
NUM_SEEDS = 12


def output_map(flat: np.ndarray, widths: tuple[int, ...]) -> np.ndarray:
    """W_L .. W_1 of stacked weights."""
    start, product = 0, np.eye(widths[0], dtype=flat.dtype)
    for before, after in pairwise(widths):
        product = flat[start : start + before * after].reshape(after, before) @ product
        start += before * after
    return product


def hessians(
    flat: np.ndarray, widths: tuple[int, ...], omega: np.ndarray, moment: np.ndarray
) -> tuple[np.ndarray, ...]:
    """H_f and H_o of half the squared loss by differences, exact because F is multilinear in the layers."""
    size = len(flat)
    unit = np.eye(size)
    base = output_map(flat, widths)
    single = [output_map(flat + unit[i], widths) for i in range(size)]
    functional = np.zeros((size, size))
    for i in range(size):
        for j in range(size):
            second = output_map(flat + unit[i] + unit[j], widths) - single[i] - single[j] + base
            functional[i, j] = 0.0 if i == j else np.sum(omega * second)
    first = [value - base for value in single]
    outer = np.array([[np.sum((a @ moment) * b) for b in first] for a in first])
    return functional, outer


def signs(matrix: np.ndarray) -> Inertia:
    values = np.linalg.eigvalsh(matrix)
    limit = 1e-9 * np.abs(values).max()
    return Inertia(int((values > limit).sum()), int((values < -limit).sum()))


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_the_signature_is_that_of_the_loop(widths: tuple[int, ...], seed: int) -> None:
    draw = np.random.default_rng(seed)
    flat = draw.normal(size=sum(a * b for a, b in pairwise(widths)))
    omega = draw.normal(size=(widths[-1], widths[0]))
    functional, _ = hessians(flat, widths, omega, np.eye(widths[0]))
    eigenvalues = np.linalg.eigvals(output_map(flat, widths) @ omega.T)
    num_layers = len(widths) - 1
    loop = loop_eigenvalues([value for value in eigenvalues if abs(value) > 1e-9], num_layers)
    rank = functional_rank(widths, widths[0], min(widths[0], widths[-1]))
    assert signs(functional) == functional_inertia(rank, loop, num_layers)


def test_the_draws_above_have_complex_pairs_in_several_sectors() -> None:
    """Otherwise the second term of the formula would not be tested."""
    found = set()
    for widths in WIDTHS:
        for seed in range(NUM_SEEDS):
            draw = np.random.default_rng(seed)
            flat = draw.normal(size=sum(a * b for a, b in pairwise(widths)))
            values = np.linalg.eigvals(output_map(flat, widths) @ draw.normal(size=(widths[-1], widths[0])).T)
            pairs = loop_eigenvalues([value for value in values if abs(value) > 1e-9], len(widths) - 1).pairs
            found |= {(len(widths) - 1, sector) for sector, number in enumerate(pairs) if number}
    assert {(2, 0), (3, 0), (5, 1)} <= found, found
    assert len(found) >= 4, found


def test_hermitian_matrix_of_a_pair_has_the_eigenvalues_of_the_proof() -> None:
    """a above and its conjugate below the diagonal: rho sin(t - theta_m) / sin(theta_m), theta_m = (t + m pi) / L."""
    for size, angle in [(2, 0.4), (3, 2.0), (5, 1.1), (6, 2.9)]:
        value = 1.7 * np.exp(1j * angle)
        matrix = np.triu(np.full((size, size), value), 1)
        matrix = matrix + matrix.conj().T
        theta = (angle + np.arange(size) * np.pi) / size
        expected = np.sort(1.7 * np.sin(angle - theta) / np.sin(theta))
        assert np.allclose(np.linalg.eigvalsh(matrix), expected)


@pytest.mark.parametrize("num_layers", range(2, 8))
def test_one_pair_has_the_signature_of_its_hermitian_matrix_twice(num_layers: int) -> None:
    for angle in np.linspace(0.05, 3.1, 23):
        value = np.exp(1j * angle)
        matrix = np.triu(np.full((num_layers, num_layers), value), 1)
        found = signs(matrix + matrix.conj().T)
        loop = loop_eigenvalues([value, value.conjugate()], num_layers)
        assert functional_signature(loop, num_layers) == 2 * (found.num_positive - found.num_negative)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("hidden", [2, 3, 4])
def test_the_index_at_every_critical_point_of_one_hidden_layer(hidden: int, seed: int) -> None:
    """Inputs with any second moment; the point is moved along its orbit W_2 G^-1, G W_1."""
    draw = np.random.default_rng(seed)
    dim, outputs = 3, 3
    root = draw.normal(size=(dim, dim))
    moment = root @ root.T
    target = draw.normal(size=(outputs, dim))
    left, values, right = np.linalg.svd(target @ root)
    for size in range(min(hidden, 3) + 1):
        for kept in combinations(range(3), size):
            some = list(kept)
            change = draw.normal(size=(hidden, hidden))
            second = np.zeros((outputs, hidden))
            first = np.zeros((hidden, dim))
            second[:, :size] = left[:, some]
            first[:size] = values[some, None] * (right[some] @ np.linalg.inv(root))
            second, first = second @ np.linalg.inv(change), change @ first
            omega = (second @ first - target) @ moment
            assert np.allclose(second.T @ omega, 0, atol=1e-8)
            assert np.allclose(omega @ first.T, 0, atol=1e-8)
            flat = np.concatenate([first.ravel(), second.ravel()])
            functional, outer = hessians(flat, (dim, hidden, outputs), omega, moment)
            index = signs(functional + outer).num_negative
            assert index == one_hidden_critical_point_index(values, some, hidden)
            if size < 3:
                found = signs(functional)
                assert found.num_positive == found.num_negative
                assert index <= critical_point_index_upper_bound(sum(found))


def test_at_deep_critical_points_half_of_the_eigenvalues_of_the_functional_hessian_are_negative() -> None:
    """W_3 W_2 = 0, W_2 W_1 = 0 and W_3^T Omega = 0: every gradient vanishes, and H_f does not."""
    draw = np.random.default_rng(3)
    first, second, third = np.zeros((4, 3)), np.zeros((4, 4)), np.zeros((2, 4))
    first[2:], second[2:, :2] = draw.normal(size=(2, 3)), draw.normal(size=(2, 2))
    third[0, :2] = draw.normal(size=2)
    omega = np.zeros((2, 3))
    omega[1] = draw.normal(size=3)
    for gradient in (third @ second, second @ first, third.T @ omega):
        assert np.all(gradient == 0)
    flat = np.concatenate([first.ravel(), second.ravel(), third.ravel()])
    functional, outer = hessians(flat, (3, 4, 4, 2), omega, np.eye(3))
    found = signs(functional)
    assert found.num_positive == found.num_negative > 0
    assert signs(functional + outer).num_negative <= critical_point_index_upper_bound(sum(found))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: loop_eigenvalues([0.0], 3), "must not be 0"),
        (lambda: loop_eigenvalues([1j], 3), "come in pairs"),
        (lambda: loop_eigenvalues([1j, -1j], 3), "multiple of pi / 2"),
        (lambda: functional_signature(LoopEigenvalues(1, 0), 1), "two layers or more"),
        (lambda: functional_signature(LoopEigenvalues(0, 0, (1, 1)), 2), "at most 1 sectors"),
        (lambda: functional_inertia(2, LoopEigenvalues(1, 0), 3), "same parity"),
        (lambda: critical_point_index_upper_bound(3), "must be even; got 3"),
        (lambda: one_hidden_critical_point_index([2.0, 1.0], [0, 0], 2), "different indices"),
        (lambda: one_hidden_critical_point_index([2.0, 1.0], [0, 1], 1), "can keep 1"),
        (lambda: one_hidden_critical_point_index([2.0, 2.0], [0], 1), "distinct"),
    ],
)
def test_what_the_formulas_do_not_cover_is_an_error(call: object, words: str) -> None:
    assert callable(call)
    with pytest.raises(InvalidInput, match=words):
        call()
