"""Vectors of millions of entries: sums in float32, numbers of products, memory of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import hessmap as hm
from hessmap.linalg.lanczos import BlockLanczos, ParallelLanczos, ScaledProduct
from hessmap.linalg.operator import SymmetricOperator
from hessmap.linalg.orthogonalisation import inner_matrix, inner_products, orthonormal_columns, row_lengths

LONG = 2**22 + 5
FLOAT32_SUMS = 1e-6  # of a sum; one long sum in float32 loses 1e-4 to 1e-2 at this length


class Diagonal(SymmetricOperator):
    """A diagonal matrix in float32 whose products are counted."""

    dtype = torch.float32

    def __init__(self, values: Tensor) -> None:
        self.values, self.num_products = values.float(), 0

    @property
    def size(self) -> int:
        return len(self.values)

    def matmat(self, vectors: Tensor) -> Tensor:
        self.num_products += vectors.shape[1]
        return self.values[:, None] * vectors


def test_long_sums_in_float32_keep_six_digits() -> None:
    rows = torch.rand(2, LONG, generator=torch.Generator().manual_seed(0)) + 0.5
    expected = rows.double() @ rows.double().T
    assert inner_matrix(rows, rows).dtype == torch.float64
    assert float((inner_matrix(rows, rows) / expected - 1).abs().max()) < FLOAT32_SUMS
    assert float((inner_products(rows, rows) / expected.diagonal() - 1).abs().max()) < FLOAT32_SUMS
    assert float((row_lengths(rows) / expected.diagonal().sqrt() - 1).abs().max()) < FLOAT32_SUMS


def test_lanczos_in_float32_keeps_its_vectors_orthonormal() -> None:
    values = torch.linspace(0.5, 1.0, LONG)
    product = ScaledProduct(lambda vectors: values[:, None] * vectors, LONG)
    product.dtype = torch.float32
    process = BlockLanczos(product, 4, precision=torch.float32)
    process.start(torch.ones(1, LONG), 1)
    for _ in range(4):
        process.expand()
    basis = process.basis.double()
    assert float((basis @ basis.T - torch.eye(4).double()).abs().max()) < 1e-5
    mean = float(values.double().mean())
    assert float(product.scale * process.projection[0, 0]) == pytest.approx(mean, rel=1e-6)
    norm = float(process.projection.abs().max())
    beside = ParallelLanczos(product, torch.ones(1, LONG), 3, "local")
    for _ in range(3):
        beside.expand()
    assert torch.allclose(beside.projection[0], process.projection[:3, :3], atol=1e-6 * norm)


@pytest.mark.parametrize("dependent", [False, True])
def test_orthonormal_columns_of_any_columns(dependent: bool) -> None:
    columns = torch.randn(200, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    columns[:, 3] = columns[:, 0] if dependent else columns[:, 3]
    found, triangle = orthonormal_columns(columns)
    assert torch.allclose(found @ triangle, columns, atol=1e-12)
    assert torch.allclose(found.T @ found, torch.eye(6, dtype=torch.float64), atol=1e-12)


def test_loose_eigenpairs_of_float32_are_verified_by_two_products() -> None:
    values = torch.cat([torch.tensor([9.0, 7.0, 5.0, 4.0]), torch.linspace(0, 1, 500)])
    counts = []
    for tolerance in (1e-3, 1e-5):  # residuals of each vector below 1e-4
        operator = Diagonal(values)
        found = hm.top_eigenpairs(operator, 4, tolerance=tolerance, block_size=1)
        assert found.converged
        assert np.abs(found.eigenvalues - [9, 7, 5, 4]).max() <= 9 * tolerance
        vectors = found.eigenvectors
        true = np.linalg.norm(values.numpy()[:, None] * vectors - vectors * found.eigenvalues, axis=0)
        assert (true <= found.residuals + 9e-6).all()
        assert found.num_products == operator.num_products
        counts.append(found.num_products)
    assert counts[0] < counts[1]


def test_traces_go_by_plain_probes_where_few_are_enough() -> None:
    generator = torch.Generator().manual_seed(0)
    near_identity = torch.eye(300).double() + 0.01 * torch.randn(300, 300, generator=generator, dtype=torch.float64)
    found = hm.trace_estimate(((near_identity + near_identity.T) / 2).numpy())
    assert (found.method, found.num_products, found.num_probes) == ("hutchinson", 16, 16)
    assert abs(found.value / float(near_identity.trace()) - 1) < 0.05
    direction = torch.randn(300, 1, generator=generator, dtype=torch.float64)
    peaked = (direction @ direction.T + 1e-3 * torch.eye(300)).numpy()
    found = hm.trace_estimate(peaked)
    assert (found.method, found.num_products) == ("hutch++", 80)  # 16 probes belong to the sketch
    assert abs(found.value / np.trace(peaked) - 1) < 0.03


@pytest.mark.parametrize("method", ["hutchinson", "hutch++"])
def test_traces_and_densities_of_float32_operators(method: str) -> None:
    values = torch.linspace(0.1, 2.0, 3000)
    found = hm.trace_estimate(Diagonal(values), method=method)
    assert abs(found.value / float(values.double().sum()) - 1) < 0.03
    density = hm.density_estimate(Diagonal(values), num_steps=12, num_probes=2, memory_budget=0)
    mean = float((density.nodes * density.weights).sum() / density.weights.sum())
    assert mean == pytest.approx(float(values.double().mean()), rel=1e-4)
    assert not density.reorthogonalised


def test_products_that_share_memory_are_not_changed() -> None:
    kept = torch.randn(50, 2, dtype=torch.float64)
    before = kept.clone()
    product = ScaledProduct(lambda vectors: kept, 50)
    assert float(product(torch.ones(50, 2).double()).abs().max()) != float(kept.abs().max()) or product.scale == 1.0
    assert torch.equal(kept, before)


def test_a_hessian_makes_new_images_and_leaves_its_vectors() -> None:
    torch.manual_seed(0)
    problem = hm.Problem(torch.nn.Linear(4, 3), "cross_entropy", torch.randn(9, 4), torch.randint(3, (9,)))
    hessian, vectors = hm.loss_hessian(problem), torch.randn(15, 1, dtype=torch.float64)
    given = vectors.clone()
    first = hessian.matmat(vectors)
    expected = first.clone()
    first.zero_()  # whoever iterates may change images in place
    assert torch.equal(hessian.matmat(vectors), expected)
    assert torch.equal(vectors, given)
