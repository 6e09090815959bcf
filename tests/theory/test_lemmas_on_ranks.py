"""The lemmas on ranks behind the formulas (Singh, Bachmann & Hofmann 2021, Lemmas 1, 14 to 18, 20 to 22), exactly."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise, product

import numpy as np
import pytest
from flint import fmpz_mat, nmod_mat
from numpy.typing import NDArray

Integers = NDArray[np.int64]
PRIME = 2_305_843_009_213_693_951


def rank(matrix: Integers) -> int:
    """Over the rationals."""
    return int(fmpz_mat(matrix.tolist()).rank()) if matrix.size else 0


def of_rank(rows: int, columns: int, value: int, seed: int) -> Integers:
    """An integer matrix of that rank: a product, or zero."""
    generator = np.random.default_rng(seed)
    for _ in range(100):
        made = generator.integers(-3, 4, (rows, value)) @ generator.integers(-3, 4, (value, columns))
        if rank(made) == value:
            return made
    raise AssertionError("no draw has the rank")


def identity(size: int) -> Integers:
    return np.eye(size, dtype=np.int64)


@pytest.mark.parametrize(("first", "second"), list(product(range(4), range(4))))
def test_lemmas_1_14_and_11_of_the_convolutional_paper(first: int, second: int) -> None:
    a, b = of_rank(3, 4, first, seed=first), of_rank(4, 3, second, seed=10 + second)
    stacked = np.vstack([np.kron(identity(3), a), np.kron(b, identity(4))])
    assert rank(stacked) == 3 * first + 4 * second - first * second


@pytest.mark.parametrize(("first", "second", "third"), list(product((0, 1, 2), (1, 2), (0, 1, 3))))
def test_lemma_15(first: int, second: int, third: int) -> None:
    a1, a2, b = of_rank(3, 4, first, 1), of_rank(2, 3, second, 2), of_rank(3, 4, third, 3)
    stacked = np.vstack([np.kron(a1, a2), np.kron(b, identity(3))])
    assert rank(stacked) == second * (rank(np.vstack([a1, b])) - third) + 3 * third


def test_lemma_16_and_corollary_17() -> None:
    for value in range(4):
        a, b = of_rank(4, 5, value, value), of_rank(3, 4, 2, value)
        assert rank(np.vstack([a, b @ a])) == value
        assert rank(np.vstack([identity(4), b])) == 4


def test_lemma_18_needs_a_definite_matrix_between() -> None:
    for value in range(4):
        a, root = of_rank(3, 5, value, value), of_rank(5, 5, 5, 7)
        assert rank(a @ (root @ root.T) @ a.T) == value
    indefinite = np.diag([1, -1])
    assert rank(np.array([[1, 1]]) @ indefinite @ np.array([[1], [1]])) == 0 < 1


def drawn(generator: np.random.Generator, *shape: int) -> nmod_mat:
    return nmod_mat(*shape, generator.integers(PRIME, size=shape).ravel().tolist(), PRIME)


def test_lemmas_20_and_21_and_corollary_22_in_a_large_field() -> None:
    """A field of 2^61 elements stands for a continuous law; one draw of each of 336 chains of up to four sizes to 4.

    The corollary is printed with the minimum of all sizes but the last, and fails where that is the smallest.
    """
    generator = np.random.default_rng(0)
    for count in (2, 3, 4):
        for sizes in product(range(1, 5), repeat=count):
            matrices = [drawn(generator, *pair) for pair in pairwise(sizes)]
            found = reduce(lambda one, other: one * other, matrices).rank()
            assert found == min(sizes)
            assert (found == min(sizes[:-1])) is (sizes[-1] >= min(sizes[:-1]))


def test_lemma_20_fails_for_a_discrete_law() -> None:
    draws = np.random.default_rng(0).integers(0, 2, (50, 3, 3))
    assert any(rank(draw) < 3 for draw in draws)
