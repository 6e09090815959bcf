"""Nothing is called converged while a value beyond the wanted ones can be hidden from a random vector."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from hessmap.linalg.lanczos import BlockLanczos, ScaledProduct
from hessmap.measurement.eigenpair_iteration import beside_basis
from hessmap.measurement.eigenpairs import top_eigenpairs
from hessmap.measurement.wanted_pairs import ENDS, MISSED, Selection, least_overlap, missed_probability, overlap_bound

STEPS = np.repeat(np.linspace(1, 0, 40), 5)  # five copies each, 2.6 % apart


@pytest.mark.parametrize("size", [3, 10, 200])
def test_a_random_coordinate_stays_below_the_limit_as_seldom_as_promised(size: int) -> None:
    vectors = np.random.default_rng(0).standard_normal((20_000, size))
    first = np.abs(vectors[:, 0]) / np.linalg.norm(vectors, axis=1)
    for probability in (0.01, 0.2):
        assert np.mean(first < least_overlap(size, probability)) <= 1.05 * probability + 2e-3


@pytest.mark.parametrize("overlap", [1e-2, 1e-5])
def test_the_bound_holds_for_a_vector_that_hardly_sees_the_largest_eigenvalue(overlap: float) -> None:
    """It is above the true inner product while the value has not appeared, and a value of the bulk falls below it."""
    values = np.append(np.linspace(0, 1, 199), 1.2)
    start = np.random.default_rng(1).standard_normal(200)
    start[-1] = 0
    start *= (1 - overlap**2) ** 0.5 / np.linalg.norm(start)
    start[-1] = overlap
    process = BlockLanczos(ScaledProduct(torch.diag(torch.from_numpy(values)).matmul, 200), 40)
    process.start(torch.from_numpy(start)[None], 1)
    for _ in range(30):
        process.expand()
        scale = process.product.scale
        beside = torch.cat([process.projection.diagonal(-1), process.coupling[0, -1:]])
        if float(process.ritz()[0][-1]) * scale < 1.2 - 1e-9:
            assert overlap_bound(process.projection.diagonal(), beside, 1.2 / scale) >= overlap * (1 - 1e-6)
    assert float(process.ritz()[0][-1]) * scale == pytest.approx(1.2, abs=1e-2)
    assert overlap_bound(process.projection.diagonal(), beside, 1.3 / scale) < overlap


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("block_size", [1, 2])
def test_no_copy_is_missed_by_narrow_blocks_at_loose_tolerances(block_size: int, tolerance: float) -> None:
    """Three probes that ran out of room were once enough, and nothing within ten tolerances was looked for."""
    for seed in range(4):
        found = top_eigenpairs(np.diag(STEPS), 8, block_size=block_size, tolerance=tolerance, seed=seed)
        assert found.converged
        assert np.abs(found.eigenvalues - STEPS[:8]).max() <= tolerance


def test_both_ends_are_asked_where_one_of_them_is_clear_at_once() -> None:
    values = np.concatenate([np.linspace(3, 1.6, 8), -STEPS[::-1]])
    for seed in range(4):
        found = top_eigenpairs(np.diag(values), 8, which="both_ends", block_size=1, tolerance=1e-3, seed=seed)
        assert found.converged
        assert np.abs(found.eigenvalues - np.concatenate([values[:8], values[-8:]])).max() <= 3e-3


def test_copies_of_a_value_far_below_the_norm_are_found_where_the_tolerance_is_relative_to_it() -> None:
    values = np.concatenate([[1.0], np.full(4, 1e-4), np.full(4, 9e-5), np.linspace(1e-5, 0, 191)])
    for seed in range(4):
        asked = {"tolerance": 1e-3, "relative_to": "eigenvalue", "block_size": 1}
        found = top_eigenpairs(np.diag(values), 5, seed=seed, **asked)
        assert found.converged
        assert np.abs(found.eigenvalues - values[:5]).max() <= 1e-7


def test_a_search_that_ends_before_it_has_decided_says_so() -> None:
    values = np.linspace(1, 0, 400)
    whole = top_eigenpairs(np.diag(values), 1, tolerance=1e-3)
    assert whole.converged
    cut = top_eigenpairs(np.diag(values), 1, tolerance=1e-3, max_products=whole.num_products - 10)
    assert not cut.converged
    assert "not converged: the products do not exclude a larger eigenvalue that was missed" in cut.provenance.notes


@pytest.mark.parametrize("which", ENDS)
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("count", [1, 4])
def test_eigenvalues_beyond_a_point_are_those_of_the_basis_and_those_beside_it(
    which: str, width: int, count: int
) -> None:
    """By dense eigenvalues: whatever has converged, the operator beside a basis accounts for all that it lacks."""
    seen = []
    for seed, steps in product(range(6), (3, 6, 12, 18)):
        generator = torch.Generator().manual_seed(seed)
        root = torch.randn(60, 60, generator=generator, dtype=torch.float64)
        matrix = root + root.T
        process = BlockLanczos(ScaledProduct(matrix.matmul, 60), 60, generator)
        process.start(torch.zeros(0, 60, dtype=torch.float64), width)
        while process.dimension < max(2 * count, steps * width):
            process.expand()
        wanted = Selection(which, count, 0.05 if which in ("largest", "smallest") else 0.3, "norm")
        values, vectors, residuals = process.ritz()
        found = values[wanted.wanted_places(values)]
        points = wanted.bounds(found, wanted.margin(found, process.norm))
        examined = beside_basis(process, wanted, values, vectors, residuals)
        if examined is None:
            assert which in ("both_ends", "magnitude")
            continue
        beside, _ = examined
        basis, scale = process.basis, process.product.scale
        complement = torch.linalg.qr(basis.T, mode="complete")[0][:, process.dimension :]
        whole = matrix / scale
        if beside.addition is not None:
            rows, middle = beside.addition
            whole = whole + rows.T @ middle @ rows
        rest = torch.linalg.eigvalsh(complement.T @ whole @ complement)
        inside, all_of_them = process.ritz()[0], torch.linalg.eigvalsh(matrix / scale)
        for sign, point, other in zip((-1, 1), points, beside.points, strict=True):
            if point is not None and other is not None:
                known, every = (int((sign * values > sign * point).sum()) for values in (inside, all_of_them))
                num_others = int((sign * rest > sign * other).sum())
                assert every <= known + num_others
                assert every == known + num_others or count > 1 or which in ("both_ends", "magnitude")
                seen.append(every > known)
    assert any(seen) or (seen and which in ("both_ends", "magnitude"))


def test_the_probabilities_of_all_probes_add_up_to_the_one_that_is_promised() -> None:
    assert sum(missed_probability(place) for place in range(1, 10_000)) == pytest.approx(MISSED, rel=1e-4)
