"""Vectors that are orthogonal to half of all digits give the rules of vectors that are orthogonal to all of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hessmap.linalg import lanczos as parallel
from hessmap.linalg import orthogonalisation
from hessmap.linalg.lanczos import ParallelLanczos
from hessmap.linalg.operator import SymmetricOperator
from hessmap.linalg.orthogonalisation import OrthogonalityEstimate
from hessmap.measurement.density import gauss_rules, lanczos_process
from hessmap.measurement.probes import ProbedOperator

SIZE, STARTS, STEPS = 2000, 3, 64


def spectra() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(SIZE, generator=generator, dtype=torch.float64)
    apart = torch.rand(SIZE - 30, generator=generator)
    few = torch.tensor([100.0, 50.0, 20.0, 10.0, 5.0, 3.0, 2.0, 1.5, 1.2])
    return {
        "random": normal,
        "uniform": torch.linspace(-1, 1, SIZE),
        "a few large": torch.cat([few, 0.01 * normal[9:].abs()]),
        "forty large": torch.cat([10 ** torch.linspace(2, -1, 40), 1e-3 * normal[40:]]),
        "both signs": torch.cat([torch.tensor([-30.0, -20.0, 40.0]), normal[3:]]),
        "repeated": torch.cat([torch.full((10,), 5.0), torch.full((20,), 3.0), apart]),
        "power law": 1 / (1 + torch.arange(SIZE)),
        "graded": 10 ** -torch.linspace(0, 12, SIZE),
        "tiny": 1e-14 * torch.cat([few, 0.01 * normal[9:].abs()]),
    }


class Diagonal(SymmetricOperator):
    """Known eigenvalues; ``noise`` of the norm is added to every product, the same for the same vector."""

    def __init__(self, eigenvalues: Tensor, noise: float = 0.0) -> None:
        self.eigenvalues, self.noise = eigenvalues.double(), noise

    @property
    def size(self) -> int:
        return len(self.eigenvalues)

    def matmat(self, vectors: Tensor) -> Tensor:
        images = self.eigenvalues[:, None] * vectors
        if self.noise:
            generator = torch.Generator().manual_seed(int(1e6 * float(vectors.abs().sum())))
            noise = torch.randn(vectors.shape, generator=generator, dtype=torch.float64) / self.size**0.5
            images = images + self.noise * float(self.eigenvalues.abs().max()) * noise
        return images


def loss_of_orthogonality(process: ParallelLanczos) -> float:
    vectors = process.basis
    return float((vectors @ vectors.mT - torch.eye(vectors.shape[1], dtype=torch.float64)).abs().max())


def process_of(operator: Diagonal) -> ParallelLanczos:
    probed = ProbedOperator(operator, 0)
    return lanczos_process(probed.product, probed.signs(STARTS), STEPS, keep_basis=True)


def fully_orthogonal_rule(operator: Diagonal, start: Tensor) -> tuple[Tensor, Tensor]:
    """Arnoldi with every vector cleared twice: T is what the basis shows of the operator."""
    basis = (start / start.norm())[:, None]
    for _ in range(STEPS - 1):
        rest = operator.matmat(basis[:, -1:])
        rest = rest / rest.norm()
        for _ in range(3):
            rest = rest - basis @ (basis.T @ rest)
            rest = rest / rest.norm()
        basis = torch.cat([basis, rest], 1)
    values, vectors = torch.linalg.eigh(basis.T @ operator.matmat(basis))
    return values, vectors[0].square()


class Recorded(OrthogonalityEstimate):
    """Stores the loss of orthogonality that is estimated for every step, and the true one, before it is mended."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.estimated: list[Tensor] = []
        self.true: list[Tensor] = []

    def _next_estimate(self, *known: Tensor) -> Tensor:
        self.estimated.append(super()._next_estimate(*known).clone())
        return self.estimated[-1]

    def spaces_to_clear(self, vectors: Tensor, rest: Tensor, lengths: Tensor, *coefficients: Tensor) -> list[int]:
        self.true.append((vectors @ rest[:, :, None]).abs().amax((1, 2)) / lengths)
        return super().spaces_to_clear(vectors, rest, lengths, *coefficients)


@pytest.mark.parametrize("name", spectra())
def test_the_estimate_follows_the_loss_of_orthogonality(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "OrthogonalityEstimate", Recorded)
    found = process_of(Diagonal(spectra()[name])).estimate
    assert isinstance(found, Recorded)
    estimated, true = torch.stack(found.estimated), torch.stack(found.true)
    assert (estimated > true / 5).all()
    assert (estimated < 1e7 * true.clamp_min(1e-15)).all()


@pytest.mark.parametrize("scale", [2.0**-40, 1.0, 2.0**40])
@pytest.mark.parametrize("left", [1.0, 2.0**-10, 2.0**-20, 2.0**-30])
def test_rounding_is_of_the_norm_and_counts_against_what_a_step_leaves(left: float, scale: float) -> None:
    """A start that is nearly an eigenvector: what is left of its image has as many wrong digits as it is shorter."""
    generator = torch.Generator().manual_seed(0)
    matrix = scale * (1 + left * torch.randn(SIZE, generator=generator, dtype=torch.float64))
    start = torch.ones(1, SIZE, dtype=torch.float64) / SIZE**0.5
    estimate = Recorded(1, 4, SIZE)
    diagonal, beside = torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 0, dtype=torch.float64)
    diagonal[0, 0] = start[0] @ (matrix * start[0])
    rest = matrix * start - diagonal[0, 0] * start
    shorter = float(diagonal[0, 0] / rest.norm())
    lengths = rest.norm(dim=1)
    estimate.spaces_to_clear(start[:, None], rest, lengths, torch.maximum(diagonal[:, 0], lengths), diagonal, beside)
    assert shorter == pytest.approx(1 / left, rel=0.2)
    assert float(estimate.true[0]) < float(estimate.estimated[0])
    assert float(estimate.estimated[0]) == pytest.approx(10 * torch.finfo(torch.float64).eps * shorter, rel=0.3)


@pytest.mark.parametrize("name", spectra())
def test_rules_are_those_of_fully_orthogonal_vectors(name: str) -> None:
    operator = Diagonal(spectra()[name])
    probed = ProbedOperator(operator, 0)
    starts = probed.signs(STARTS)
    found = gauss_rules(probed.product, starts, STEPS, keep_basis=True)
    norm = float(operator.eigenvalues.abs().max())
    for start, nodes, weights in zip(starts.T, probed.scale * found.nodes, found.weights, strict=True):
        expected = fully_orthogonal_rule(operator, start)
        assert nodes.numpy() == pytest.approx(expected[0].numpy(), abs=1e-12 * norm)
        assert weights.numpy() == pytest.approx(expected[1].numpy(), abs=1e-10)
    process = process_of(operator)
    assert loss_of_orthogonality(process) < 1e-7
    assert process.estimate is not None
    assert process.estimate.num_cleared < 0.7 * STARTS * STEPS
    assert not found.is_exact.any()


def test_without_the_estimate_orthogonality_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard bites: large eigenvalues bring copies of themselves."""
    for name in ("_SEMI", "_VISIBLE"):
        monkeypatch.setattr(orthogonalisation, name, torch.inf)
    assert loss_of_orthogonality(process_of(Diagonal(spectra()["a few large"]))) > 0.5


@pytest.mark.parametrize("name", ["both signs", "a few large", "forty large"])
@pytest.mark.parametrize("noise", [1e-13, 1e-10, 1e-8, 1e-6])
def test_products_that_are_not_symmetric_to_rounding_are_noticed(noise: float, name: str) -> None:
    """As those in float32: the recurrence for the orthogonality knows nothing of their rounding."""
    assert loss_of_orthogonality(process_of(Diagonal(spectra()[name], noise))) < 1e-7


@pytest.mark.parametrize("scale", [1.0, 1e-14, 1e14])
def test_a_space_that_ends_is_seen_to_end(scale: float) -> None:
    """Seven different eigenvalues, one of them zero, far apart from each other."""
    eigenvalues = scale * torch.tensor([100.0, 3.0, 1.0, 0.5, 1e-3, -2.0, 0.0]).repeat(200)
    probed = ProbedOperator(Diagonal(eigenvalues), 0)
    found = gauss_rules(probed.product, probed.signs(STARTS), STEPS, keep_basis=True)
    assert found.is_exact.all()
    assert found.nodes.shape == (STARTS, 7)
    expected = torch.sort(eigenvalues[:7].double()).values
    for nodes in probed.scale * found.nodes:
        assert nodes.numpy() == pytest.approx(expected.numpy(), abs=1e-12 * 100 * scale)
