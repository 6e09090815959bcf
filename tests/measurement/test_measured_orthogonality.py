"""Semi-orthogonality of a basis in float32: the basis is read seldom, and what is promised of it holds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hessmap.linalg.lanczos import BlockLanczos, ScaledProduct
from hessmap.linalg.operator import LinearOperator
from hessmap.linalg.orthogonalisation import MeasuredOrthogonality
from hessmap.measurement.eigenpair_iteration import EigenpairIteration
from hessmap.measurement.eigenpairs import top_eigenpairs
from known_spectra import rotated

SIZE = 300
SPECTRA = {
    "outliers": np.concatenate([np.linspace(1, 0.7, 6), np.linspace(0.1, -0.05, SIZE - 6)]),
    "one far away": np.concatenate([[1.0], np.linspace(1e-3, 0, SIZE - 1)]),
    "even": np.linspace(1, -1, SIZE),
    "decaying": 0.9 ** np.arange(SIZE),
    "repeated": np.repeat(np.linspace(1, 0, SIZE // 5), 5),
}
every_spectrum = pytest.mark.parametrize("name", SPECTRA)


def float32_process(name: str, width: int, capacity: int, is_semi_orthogonal: bool = True) -> BlockLanczos:
    matrix = torch.from_numpy(rotated(SPECTRA[name])).float()
    product = ScaledProduct(matrix.matmul, SIZE)
    product.dtype = torch.float32
    process = BlockLanczos(product, capacity, torch.Generator().manual_seed(0), torch.float32, is_semi_orthogonal)
    process.start(torch.zeros(0, SIZE), width)
    return process


def largest_overlap(process: BlockLanczos) -> float:
    basis = process.basis.double()
    return float((basis @ basis.T - torch.eye(len(basis), dtype=torch.float64)).abs().max())


@pytest.mark.parametrize("width", [1, 3])
@every_spectrum
def test_the_basis_keeps_half_of_its_digits_through_restarts(name: str, width: int) -> None:
    process = float32_process(name, width, 61)
    for _ in range(3):
        while process.room >= process.width > 0:
            process.expand()
            assert largest_overlap(process) < 3e-4
        values, vectors, _ = process.ritz()
        process.restrict(values[-20:], vectors[:, -20:])
        assert largest_overlap(process) < 3e-4
    exact = np.linalg.eigvalsh(rotated(SPECTRA[name]))
    found = process.product.scale * process.ritz()[0].numpy()
    assert np.abs(found[-1] - exact[-1]) < 1e-4
    assert found.min() > exact[0] - 1e-4


def test_the_basis_is_read_seldom() -> None:
    process = float32_process("even", 1, 60)
    for _ in range(60):
        process.expand()
    assert process.orthogonality is not None
    assert process.orthogonality.num_cleared <= 12


@pytest.mark.parametrize("name", ["outliers", "decaying"])
def test_without_a_look_orthogonality_is_lost(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound above is no matter of course: where nothing is cleared the basis holds copies."""
    monkeypatch.setattr(MeasuredOrthogonality, "is_lost", lambda *_: False)
    process = float32_process(name, 1, 60)
    for _ in range(60):
        process.expand()
    assert largest_overlap(process) > 0.1


class InFloat32(LinearOperator):
    """A matrix whose products and vectors are in float32, one vector at a time."""

    dtype = torch.float32

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix = torch.from_numpy(matrix).float()

    @property
    def block_size(self) -> int:
        return 1

    @property
    def shape(self) -> tuple[int, int]:
        return SIZE, SIZE

    def matmat(self, vectors: torch.Tensor) -> torch.Tensor:
        return self.matrix @ vectors.float()


@every_spectrum
@pytest.mark.parametrize("count", [1, 8])
def test_eigenvalues_are_those_of_full_orthogonality(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies among them: a probe clears its vectors of everything."""
    matrix = rotated(SPECTRA[name])
    wanted = np.linalg.eigvalsh(matrix)[::-1][:count]
    for is_semi_orthogonal in (True, False):
        monkeypatch.setattr(EigenpairIteration, "is_semi_orthogonal", is_semi_orthogonal)
        found = top_eigenpairs(InFloat32(matrix), count, tolerance=1e-3)
        assert found.converged
        assert found.eigenvalues == pytest.approx(wanted, abs=2e-3)
        vectors = found.eigenvectors
        assert np.linalg.norm(matrix @ vectors - vectors * found.eigenvalues, axis=0).max() < 1.2e-3


def test_it_is_for_float32_and_tolerances_far_above_it() -> None:
    matrix = InFloat32(rotated(SPECTRA["outliers"]))
    asked: list[bool] = []
    chosen = EigenpairIteration.is_semi_orthogonal.fget
    for tolerance in (1e-3, 1e-5):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                EigenpairIteration, "is_semi_orthogonal", property(lambda plan: asked.append(chosen(plan)) or asked[-1])
            )
            top_eigenpairs(matrix, 3, tolerance=tolerance)
    assert asked == [True, False]
