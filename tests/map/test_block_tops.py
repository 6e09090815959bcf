"""The largest eigenvalue of every block, against the eigenvalues of the block itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hessmap.maps.curvature_map.layers import LEAST_STEPS, block_tops

Spectrum = Callable[[np.random.Generator, int], NDArray[np.float64]]
SIZES = (40, 1, 25, 60)
SPECTRA: dict[str, Spectrum] = {
    "outliers over a bulk": lambda random, size: np.r_[30.0, 10.0, random.normal(0, 0.1, size)][:size],
    "all negative": lambda random, size: -random.uniform(1, 2, size),
    "all zero": lambda random, size: np.zeros(size),
    "one value": lambda random, size: np.full(size, 3.0),
    "a larger negative one": lambda random, size: np.r_[-50.0, 4.0, random.normal(0, 0.1, size)][:size],
    "tiny": lambda random, size: 1e-150 * np.r_[7.0, random.normal(0, 0.1, size)][:size],
}


def matrix_with_blocks(name: str) -> tuple[NDArray[np.float64], torch.Tensor]:
    """A matrix whose diagonal blocks have the spectrum, with entries between the blocks, in a shuffled order."""
    random = np.random.default_rng(3)
    whole = random.normal(size=(sum(SIZES),) * 2) if name != "tiny" else np.zeros((sum(SIZES),) * 2)
    whole, start = whole + whole.T, 0
    for size in SIZES:
        basis = np.linalg.qr(random.normal(size=(size, size)))[0]
        part = slice(start, start + size)
        whole[part, part] = basis @ np.diag(SPECTRA[name](random, size)) @ basis.T
        whole[part, part] = (whole[part, part] + whole[part, part].T) / 2
        start += size
    order = random.permutation(start)
    return whole[np.ix_(order, order)], torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))[order]


def blocks(whole: NDArray[np.float64], block_of: torch.Tensor) -> list[NDArray[np.float64]]:
    places = [np.flatnonzero(block_of.numpy() == number) for number in range(len(SIZES))]
    return [np.linalg.eigvalsh(whole[np.ix_(place, place)]) for place in places]


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("max_products", [0, 20, 10_000])
def test_values_are_lower_bounds_near_eigenvalues(name: str, max_products: int) -> None:
    whole, block_of = matrix_with_blocks(name)
    found = block_tops(whole, block_of, max_products=max_products, seed=1)
    assert found.num_products <= max(LEAST_STEPS * len(SIZES), max_products)
    for place, eigenvalues in enumerate(blocks(whole, block_of)):
        rounding = 1e-12 * np.abs(eigenvalues).max()
        assert found.values[place] <= eigenvalues[-1] + rounding
        assert np.abs(eigenvalues - found.values[place]).min() <= found.residuals[place] + rounding
        if found.converged[place]:
            assert found.residuals[place] <= 1e-2 * abs(found.values[place]) + rounding


@pytest.mark.parametrize("name", ["outliers over a bulk", "one value", "a larger negative one", "tiny", "all zero"])
def test_with_products_enough_they_are_the_largest_eigenvalues(name: str) -> None:
    whole, block_of = matrix_with_blocks(name)
    found = block_tops(whole, block_of, max_products=10_000, max_steps=30, tolerance=1e-6)
    tops = [eigenvalues[-1] for eigenvalues in blocks(whole, block_of)]
    assert found.converged.all()
    assert found.values == pytest.approx(tops, rel=1e-6, abs=1e-12 * np.abs(whole).max())


def test_a_start_near_the_vectors_saves_products_and_converged_blocks_make_none() -> None:
    whole, block_of = matrix_with_blocks("outliers over a bulk")
    start = torch.zeros(len(whole), dtype=torch.float64)
    for number in range(len(SIZES)):
        place = np.flatnonzero(block_of.numpy() == number)
        start[place] = torch.from_numpy(np.linalg.eigh(whole[np.ix_(place, place)])[1][:, -1].copy())
    cold = block_tops(whole, block_of, max_products=10_000, tolerance=1e-6)
    warm = block_tops(whole, block_of, max_products=10_000, tolerance=1e-6, start=start)
    assert warm.converged.all()
    assert warm.num_products <= cold.num_products
    assert cold.num_products < 16 * len(SIZES)  # the block of one entry makes a single one


def test_a_start_that_misses_a_block_or_the_top_of_one_finds_it() -> None:
    whole, block_of = matrix_with_blocks("outliers over a bulk")
    start = torch.zeros(len(whole), dtype=torch.float64)
    place = np.flatnonzero(block_of.numpy() == 0)
    start[place] = torch.from_numpy(np.linalg.eigh(whole[np.ix_(place, place)])[1][:, -2].copy())
    found = block_tops(whole, block_of, max_products=10_000, start=start, tolerance=1e-6)
    assert found.values == pytest.approx([eigenvalues[-1] for eigenvalues in blocks(whole, block_of)], rel=1e-6)
