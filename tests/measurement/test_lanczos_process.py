"""The defining identity of the Lanczos process, and what it makes of blocks whose directions vanish."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.linalg.lanczos import BlockLanczos, ParallelLanczos, ScaledProduct, spectral_norm
from hessmap.measurement.eigenpairs import top_eigenpairs
from known_spectra import KNOWN_MATRICES, KnownMatrix, random_orthogonal, rotated

NOT_EMPTY = [case for case in KNOWN_MATRICES if len(case.eigenvalues)]
every_matrix = pytest.mark.parametrize("case", NOT_EMPTY, ids=[case.name for case in NOT_EMPTY])


def product_of(matrix: np.ndarray) -> ScaledProduct:
    return ScaledProduct(torch.from_numpy(matrix).matmul, len(matrix))


def random_rows(count: int, size: int, seed: int = 0) -> Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def departure(process: BlockLanczos, norm: float) -> tuple[float, float]:
    """||A Q - Q T - B C|| of the norm, and |V V^T - I| for all vectors V."""
    basis, block = process.basis.double(), process.block
    vectors = torch.cat([basis, block])
    images = process.product(basis.T)
    rest = images - basis.T @ process.projection - block.T @ process.coupling
    loss = (vectors @ vectors.T - torch.eye(len(vectors), dtype=torch.float64)).abs()
    return process.product.scale * float(rest.norm()) / (norm or 1.0), float(loss.max())


@pytest.mark.parametrize("refilled", [False, True])
@pytest.mark.parametrize("width", [1, 2, 5, 40])
@every_matrix
def test_the_identity_holds_in_every_block(case: KnownMatrix, width: int, refilled: bool) -> None:
    size = len(case.eigenvalues)
    generator = torch.Generator().manual_seed(1) if refilled else None
    process = BlockLanczos(product_of(case.matrix), size, generator)
    process.start(random_rows(min(width, size), size), min(width, size))
    while process.width:
        process.expand()
        rest, loss = departure(process, case.norm)
        assert rest < 1e-12
        assert loss < 1e-12
    assert process.dimension == size or not refilled
    values = np.sort(process.product.scale * torch.linalg.eigvalsh(process.projection).numpy())[::-1]
    if refilled:
        assert values == pytest.approx(case.eigenvalues, abs=1e-12 * case.norm)
    else:
        found = np.abs(values[:, None] - case.eigenvalues[None]).min(1)
        assert found.max() <= 1e-12 * case.norm  # a space that has ended holds eigenvalues, not all copies of them


@pytest.mark.parametrize("orthogonality", ["semi_orthogonal", "local"])
@every_matrix
def test_spaces_side_by_side_are_those_of_each_start_alone(case: KnownMatrix, orthogonality: str) -> None:
    size = len(case.eigenvalues)
    starts = random_rows(4, size)
    starts[2] = torch.from_numpy(random_orthogonal(size, len(case.name))[:, 0])  # an eigenvector: its space ends
    num_steps = min(size, 5)
    together = ParallelLanczos(product_of(case.matrix), starts, num_steps, orthogonality)
    while together.dimension < num_steps and together.width:
        together.expand()
    for place, start in enumerate(starts):
        product = product_of(case.matrix)
        alone = BlockLanczos(product, size)
        alone.start(start[None], 1)
        for _ in range(int(together.num_vectors[place])):
            alone.expand()
        count = alone.dimension
        assert count == int(together.num_vectors[place])
        expected = product.scale * alone.projection
        found = together.product.scale * together.projection[place, :count, :count]
        # Couplings have no sign of their own, and a tiny one passes its rounding on to what follows.
        assert found.abs().numpy() == pytest.approx(expected.abs().numpy(), abs=1e-6 * case.norm)
    assert int(together.num_vectors[2]) == 1


def test_starts_that_are_dependent_zero_or_invariant_leave_an_orthonormal_block() -> None:
    eigenvalues = np.concatenate([np.linspace(3, 1, 10), np.zeros(20)])
    matrix, rotation = rotated(eigenvalues), torch.from_numpy(random_orthogonal(30, 1))
    row = random_rows(1, 30)
    starts = {
        "zero": torch.zeros(4, 30, dtype=torch.float64),
        "equal": row.expand(4, 30),
        "nearly equal": row + 1e-15 * random_rows(4, 30, 1),
        "tiny": 1e-300 * random_rows(4, 30),
        "of all sizes": random_rows(4, 30) * torch.tensor([[1.0], [1e-300], [1e150], [0.0]], dtype=torch.float64),
        "eigenvectors": rotation[:, :4].T,
        "kernel": rotation[:, 20:24].T,
        "more than dimensions": random_rows(50, 30),
    }
    for rows in starts.values():
        process = BlockLanczos(product_of(matrix), 30, torch.Generator().manual_seed(0))
        process.start(rows.clone(), 4)
        while process.width:
            process.expand()
            assert max(departure(process, 3.0)) < 1e-11
        assert process.dimension == 30


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("size", [1, 2, 7, 12, 20])
def test_a_basis_in_float32_never_has_more_vectors_than_dimensions(size: int, width: int) -> None:
    """Its rounding is above what is negligible in float64, and looked like directions that were not there."""
    matrix = rotated(np.linspace(1, 0, size))
    process = BlockLanczos(product_of(matrix), size, torch.Generator().manual_seed(0), torch.float32)
    process.start(random_rows(min(width, size), size), min(width, size))
    while process.width:
        process.expand()
        rest, loss = departure(process, 1.0)
        assert rest < 1e-5
        assert loss < 1e-5
    assert process.dimension == size


@pytest.mark.parametrize("scale", [0.0, 1e-320, 1e-300, 1.0, 1e300])
@pytest.mark.parametrize("form", ["full", "projection", "one entry", "repeated"])
@pytest.mark.parametrize("size", [1, 2, 5, 13])
def test_top_eigenpairs_of_any_size_scale_and_count(size: int, form: str, scale: float) -> None:
    eigenvalues = {
        "full": np.linspace(1, 2, size),
        "projection": (np.arange(size) < size // 2).astype(float),
        "one entry": np.eye(size)[0],
        "repeated": np.full(size, -2.0),
    }[form]
    matrix = rotated(eigenvalues) * scale
    for count in range(1, size + 1):
        for block_size in sorted({1, min(3, size), size}):
            found = top_eigenpairs((matrix + matrix.T) / 2, count, block_size=block_size)
            assert found.converged or scale == 1e-320  # where values have three digits
            expected = scale * np.sort(eigenvalues)[::-1][:count]
            assert found.eigenvalues == pytest.approx(expected, abs=1e-12 * scale * 2 + 1e-322)
            vectors = found.eigenvectors
            assert np.abs(vectors.T @ vectors - np.eye(count)).max() < 1e-12


@pytest.mark.parametrize("kind", ["inside an invariant space", "in the kernel", "zero", "dependent", "all of it"])
def test_a_start_that_knows_too_little_is_completed(kind: str) -> None:
    rotation = random_orthogonal(40, 1)
    eigenvalues = np.concatenate([[5.0, 5.0, 4.0, 3.0], np.zeros(36)])
    start = {
        "inside an invariant space": rotation[:, 2:4],
        "in the kernel": rotation[:, 10:14],
        "zero": np.zeros((40, 4)),
        "dependent": np.repeat(rotation[:, :1], 4, axis=1),
        "all of it": rotation,
    }[kind]
    for block_size in (1, 4, 8):
        found = top_eigenpairs(rotated(eigenvalues), 4, start=start, block_size=block_size)
        assert found.converged
        assert found.eigenvalues == pytest.approx([5, 5, 4, 3], abs=1e-7)


class Turning(hm.linalg.SymmetricOperator):
    """NaN or inf from the second product on."""

    size, count = 30, 0

    def __init__(self, bad: float) -> None:
        self.bad = bad

    def matmat(self, vectors: Tensor) -> Tensor:
        self.count += 1
        return vectors * (self.bad if self.count > 1 else torch.linspace(0, 1, 30, dtype=torch.float64)[:, None])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    "measure",
    [
        lambda operator: hm.top_eigenpairs(operator, 3),
        lambda operator: hm.measurement.density_estimate(operator),
        lambda operator: hm.measurement.krylov_solve(operator, np.ones(30), 1.0),
        lambda operator: hm.trace_estimate(operator),
        lambda operator: spectral_norm(operator.matmat, 30),
    ],
    ids=["eigenpairs", "density", "solve", "trace", "norm"],
)
def test_products_that_turn_into_nan_are_refused_in_one_sentence(measure: object, bad: float) -> None:
    with pytest.raises(InvalidInput, match="the products of an operator must be finite; there is NaN or inf in one"):
        measure(Turning(bad))


def test_the_norm_stores_three_vectors() -> None:
    process = ParallelLanczos(product_of(np.diag(np.linspace(0, 1, 200))), random_rows(1, 200), 4, "local")
    for _ in range(60):  # the projected matrix grows past its capacity
        process.expand()
    assert process.basis.shape[1] == 0
    assert process.product.scale * float(torch.linalg.eigvalsh(process.projection)[0, -1]) == pytest.approx(1, rel=1e-6)
