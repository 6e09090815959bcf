"""A start from the eigenvectors of an earlier checkpoint needs fewer products, and finds the same eigenpairs."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import hessmap as hm
from hessmap.records import EigenpairsMeasurement

COUNT = 10


@pytest.fixture(scope="module")
def checkpoints() -> list[hm.Problem]:
    """A network on digits after 8, 9, .., 12 epochs."""
    data = hm.datasets.digits(num_samples=150)
    model = hm.FullyConnected((64, 30, 20, 10), activation="relu").build(seed=0, init="kaiming")
    found = []
    for epoch in range(12):
        hm.train(model, data, epochs=1, learning_rate=0.02, seed=epoch)
        if epoch >= 7:
            found.append(hm.Problem(copy.deepcopy(model), "cross_entropy", *data))
    return found


def pairs(problem: hm.Problem, tolerance: float, start: np.ndarray | None = None) -> EigenpairsMeasurement:
    return hm.top_eigenpairs(hm.loss_hessian(problem), COUNT, tolerance=tolerance, start=start, seed=1)


@pytest.mark.parametrize(("tolerance", "most"), [(1e-2, 0.75), (1e-3, 0.85), (1e-6, 0.95)])
def test_a_start_from_the_checkpoint_before_saves_products(
    checkpoints: list[hm.Problem], tolerance: float, most: float
) -> None:
    cold = [pairs(problem, tolerance) for problem in checkpoints]
    warm = [pairs(later, tolerance, cold[place].eigenvectors) for place, later in enumerate(checkpoints[1:])]
    for one, other in zip(cold[1:], warm, strict=True):
        assert one.converged
        assert other.converged
        assert other.num_products <= one.num_products
        assert np.abs(one.eigenvalues - other.eigenvalues).max() <= 2 * tolerance * one.norm
    used = [sum(found.num_products for found in some) for some in (warm, cold[1:])]
    assert used[0] <= most * used[1]


def test_a_start_that_is_wrong_finds_the_same_pairs(checkpoints: list[hm.Problem]) -> None:
    wrong = torch.linalg.qr(torch.randn(2720, COUNT, generator=torch.Generator().manual_seed(3)).double()).Q.numpy()
    right, found = pairs(checkpoints[0], 1e-6), pairs(checkpoints[0], 1e-6, wrong)
    assert found.converged
    assert found.eigenvalues == pytest.approx(right.eigenvalues, abs=1e-6 * right.norm)


def test_the_tracker_starts_from_the_point_before(checkpoints: list[hm.Problem], tmp_path: Path) -> None:
    """The same weights again: nothing is left to be found but that there is nothing else."""
    data = hm.datasets.digits(num_samples=150)
    model = copy.deepcopy(checkpoints[0].model).requires_grad_()
    options = {"store": tmp_path / "runs.sqlite", "share": None, "quantities": ("eigenvalues",)}
    tracker = hm.Tracker(model, "cross_entropy", data, **options)
    cold, warm = tracker.measure(0), tracker.measure(1)
    assert (cold.is_warm, warm.is_warm) == (False, True)
    assert warm.num_products < 0.75 * cold.num_products
