"""Eigenpairs by products in float32 meet the promises of those in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import hessmap as hm
from hessmap.errors import UnknownName
from hessmap.linalg.operator import SymmetricOperator
from hessmap.measurement.eigenpairs import top_eigenpairs
from hessmap.records import EigenpairsMeasurement, Record
from known_spectra import Counted, Floats, random_orthogonal, rotated

PRECISIONS = ["single", "mixed"]
THIRTY_COPIES = np.concatenate([np.full(30, 5.0), np.linspace(0, 4, 370)])
APART = np.concatenate([np.linspace(2, 1.5, 6), np.linspace(1, 0, 294)])


class Narrow(SymmetricOperator):
    """A matrix by products that are rounded to float32, of vectors in float64; summed in float64, in which the order
    of a sum, and with it the machine, does not matter."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix, self.count = matrix.float(), 0

    @property
    def size(self) -> int:
        return len(self.matrix)

    def matmat(self, vectors: Tensor) -> Tensor:
        self.count += vectors.shape[1]
        return (self.matrix.double() @ vectors.float().double()).float().double()


class Wide(Counted):
    """A matrix that offers another one, or its own, in float32."""

    def __init__(self, matrix: Floats, other: Floats | None = None) -> None:
        super().__init__(matrix)
        self.narrow = Narrow(self.matrix if other is None else torch.from_numpy(other))

    def in_single_precision(self) -> Narrow:
        return self.narrow


def true_residuals(found: EigenpairsMeasurement, matrix: Floats) -> Floats:
    return np.linalg.norm(matrix @ found.eigenvectors - found.eigenvectors * found.eigenvalues, axis=0)


@pytest.mark.parametrize("scale", [1.0, 1e-14, 1e14])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-4, 1e-5])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_pairs_and_residuals_are_those_of_float64(precision: str, tolerance: float, scale: float) -> None:
    operator = Wide(scale * rotated(APART))
    found = top_eigenpairs(operator, 6, tolerance=tolerance, precision=precision)
    assert (found.converged, found.num_products) == (True, operator.count + operator.narrow.count)
    assert found.num_single_products == operator.narrow.count
    assert operator.count == 1 + {"single": 3, "mixed": 7}[precision]  # one more asks whether it is symmetric
    assert f"{found.num_single_products} of {found.num_products} products" in found.provenance.notes[-1]
    true = true_residuals(found, operator.matrix.numpy())
    error = np.abs(found.eigenvalues - scale * APART[:6])
    assert (true <= tolerance * found.norm).all()
    if precision == "mixed":
        assert found.residuals == pytest.approx(true, rel=1e-6)
        assert (error <= 20 * (true / scale) ** 2 * scale + 1e-13 * scale).all()
    else:
        assert (true <= 1.01 * found.residuals).all()
        assert (error <= found.residuals).all()
    assert np.abs(found.eigenvectors.T @ found.eigenvectors - np.eye(6)).max() < 1e-12
    assert found.residual_check <= 3 * np.linalg.norm(true)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("block_size", [1, 8])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_thirty_copies_are_all_found(precision: str, block_size: int, seed: int) -> None:
    operator = Wide(rotated(THIRTY_COPIES))
    found = top_eigenpairs(operator, 33, tolerance=1e-5, block_size=block_size, precision=precision, seed=seed)
    assert found.converged
    assert found.num_single_products > 0.7 * found.num_products
    assert found.eigenvalues == pytest.approx(np.sort(THIRTY_COPIES)[::-1][:33], abs=5e-5)


class Rounded(Narrow):
    """Products that say to round their vectors, so that these are held in float32."""

    precision = torch.float32


@pytest.mark.parametrize("block_size", [1, 4, 8])
@pytest.mark.parametrize("eigenvalues", [THIRTY_COPIES, 2.0 ** -np.linspace(0, 15, 400)], ids=["copies", "falling"])
def test_a_basis_in_float32_leads_to_orthonormal_vectors_with_true_residuals(
    eigenvalues: Floats, block_size: int
) -> None:
    matrix = rotated(eigenvalues)
    found = top_eigenpairs(Rounded(torch.from_numpy(matrix)), 33, tolerance=1e-6, block_size=block_size)
    assert found.converged
    assert found.eigenvalues == pytest.approx(np.sort(eigenvalues)[::-1][:33], abs=2e-6 * found.norm)
    assert np.abs(found.eigenvectors.T @ found.eigenvectors - np.eye(33)).max() < 1e-12
    assert (true_residuals(found, matrix) <= 1.5e-6 * found.norm).all()


def test_an_iteration_in_float32_leaves_room_for_what_orthonormalising_adds() -> None:
    """Two of forty ended within a hundredth of the tolerance, and what came to their residuals undid ``converged``."""
    operator = Rounded(torch.from_numpy(rotated(np.arange(1.0, 301.0) ** -0.2)))
    for seed in range(40):
        found = top_eigenpairs(operator, 9, tolerance=3e-7, precision="float64", block_size=1, seed=seed)
        assert found.converged


@pytest.mark.parametrize("precision", PRECISIONS)
def test_eigenvalues_below_the_rounding_of_float32_are_found_in_float64(precision: str) -> None:
    eigenvalues = np.concatenate([10.0 ** -np.linspace(0, 6, 20), np.linspace(1e-7, 0, 180)])
    operator = Wide(rotated(eigenvalues))
    question = {"tolerance": 1e-4, "relative_to": "eigenvalue"}
    found = top_eigenpairs(operator, 20, precision=precision, **question)
    assert found.converged
    assert found.num_single_products == operator.narrow.count > 1
    assert found.num_products - found.num_single_products == operator.count > 20
    assert (true_residuals(found, operator.matrix.numpy()) <= 1e-4 * found.eigenvalues).all()
    assert found.eigenvalues == pytest.approx(eigenvalues[:20], rel=1e-4)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_numbers_that_float32_has_no_room_for_are_left_to_float64(precision: str, scale: float) -> None:
    operator = Wide(scale * rotated(APART))
    found = top_eigenpairs(operator, 6, tolerance=1e-4, precision=precision)
    assert (found.converged, found.num_single_products) == (True, 1)
    assert found.eigenvalues == pytest.approx(scale * APART[:6], rel=1e-4)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_direction_that_float32_does_not_see_is_found(precision: str) -> None:
    """Residuals alone would not tell: the pairs of the rest are right."""
    eigenvalues = np.concatenate([[2.5], APART[1:]])
    rotation = random_orthogonal(300, 1)
    matrix = rotated(eigenvalues)
    lacking = matrix - 2.5 * np.outer(rotation[:, 0], rotation[:, 0])
    found = top_eigenpairs(Wide(matrix, lacking), 3, tolerance=1e-3, precision=precision)
    assert found.converged
    assert found.eigenvalues == pytest.approx(eigenvalues[:3], abs=1e-3)
    assert found.num_single_products == 1


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rounding_above_the_tolerance_sends_the_iteration_to_float64(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the first look at both products, the last one still tells."""
    matrix = rotated(APART)
    noise = np.random.default_rng(0).standard_normal(matrix.shape) * 1e-4
    monkeypatch.setattr("hessmap.measurement.eigenpair_iteration._agree", lambda *_: True)
    found = top_eigenpairs(Wide(matrix, matrix + noise + noise.T), 6, tolerance=1e-4, precision=precision)
    assert found.converged
    assert (true_residuals(found, matrix) <= 1e-4 * found.norm).all()
    assert 1 < found.num_single_products < found.num_products - 10


class Recorded(Wide):
    """Stores the vectors of its first and last product in float64."""

    first: np.ndarray | None = None
    last = np.zeros((0, 0))

    def matmat(self, vectors: Tensor) -> Tensor:
        self.last = vectors.numpy().copy()
        self.first = self.last[:, :1] / np.linalg.norm(self.last[:, 0]) if self.first is None else self.first
        return super().matmat(vectors)


@pytest.mark.parametrize(("precision", "num_mixtures"), [("single", 2), ("float64", 1)])
def test_the_last_product_is_with_random_signs_of_all_vectors_that_were_found(
    precision: str, num_mixtures: int
) -> None:
    """With signs that are known beforehand, errors of several vectors could cancel in every run. In float64 the first
    vector is part of it: one product compares both."""
    operator = Recorded(rotated(1 / (1 + np.arange(300.0))))
    found = top_eigenpairs(operator, 40, tolerance=1e-4, precision=precision)
    assert found.converged
    last = operator.last - operator.first if precision == "float64" else operator.last
    signs = found.eigenvectors.T @ last
    assert signs.shape == (40, num_mixtures)
    assert np.abs(signs) == pytest.approx(np.ones((40, num_mixtures)), abs=1e-9)
    assert (np.abs(signs.sum(0)) < 30).all()
    assert np.abs(signs[:, 0] @ signs[:, -1]) < 30 or num_mixtures == 1


def test_the_check_of_pairs_is_a_random_combination_of_their_residuals() -> None:
    signs = []
    for seed in range(12):
        operator = Wide(rotated(APART))
        found = top_eigenpairs(operator, 2, tolerance=1e-3, block_size=1, precision="mixed", seed=seed)
        one, other = (operator.matrix.numpy() @ found.eigenvectors - found.eigenvectors * found.eigenvalues).T
        lengths = np.linalg.norm([one + other, one - other], axis=1)
        apart = np.abs(lengths / found.residual_check - 1)
        assert apart.min() < 1e-6
        signs += [int(apart.argmin())] if apart.max() > 1e-4 else []
    assert set(signs) == {0, 1}


def test_products_are_bounded_and_what_is_not_found_is_not_claimed() -> None:
    operator = Wide(rotated(np.linspace(0, 1, 300)))
    found = top_eigenpairs(operator, 3, tolerance=1e-5, block_size=1, precision="mixed", max_products=30)
    assert not found.converged
    assert found.num_products <= 31
    assert found.residuals == pytest.approx(true_residuals(found, operator.matrix.numpy()), rel=1e-6)
    assert found.residuals.max() > 1e-5


def test_tight_tolerances_small_sizes_and_float32_itself_are_left_alone() -> None:
    operator = Wide(rotated(APART))
    for question in ({"precision": "mixed"}, {"tolerance": 1e-3}, {"tolerance": 1e-3, "precision": "float64"}):
        assert top_eigenpairs(operator, 3, **question).num_single_products == 0
    assert operator.narrow.count == 0
    with pytest.raises(UnknownName, match="precision must be one of auto, single, mixed, float64; got 'half'"):
        top_eigenpairs(operator, 3, precision="half")


def test_the_record_tells_products_in_float32_and_survives_json() -> None:
    found = top_eigenpairs(Wide(rotated(APART)), 3, tolerance=1e-3, precision="mixed")
    assert Record.from_json(found.to_json()).num_single_products == found.num_single_products > 0


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.Tanh(), torch.nn.Linear(20, 5)).double()


@pytest.mark.parametrize("form", [hm.Problem])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_problems_offer_a_twin_in_float32(form: type, precision: str) -> None:
    inputs, labels = torch.randn(60, 30).double(), torch.randint(5, (60,))
    model, weights = network(), torch.rand(60).double()
    for loss in ("cross_entropy", torch.nn.CrossEntropyLoss(weight=torch.rand(5).double()), "squared"):
        hessian = hm.loss_hessian(form(model, loss, inputs, labels, weights=weights, l2=0.01, parameters="*.weight"))
        found = top_eigenpairs(hessian, 4, tolerance=1e-4, precision=precision)
        expected = top_eigenpairs(hessian, 4)
        assert (found.converged, found.provenance.dtype) == (True, "float64")
        assert found.num_single_products > 0.7 * found.num_products
        assert found.eigenvalues == pytest.approx(expected.eigenvalues, abs=1e-6 * expected.norm)
        assert all(value.dtype == torch.float64 for value in hessian.problem.named.values())


def test_a_problem_that_holds_to_float64_has_no_twin() -> None:
    inputs, targets = torch.randn(40, 30).double(), torch.randn(40, 5).double()
    shift = torch.ones(5, dtype=torch.float64)
    stubborn = hm.Problem(network(), lambda out, y: (out - y + shift).square().sum(1), inputs, targets)
    shifted = hm.Problem(network(), "squared", inputs, targets, forward=lambda model, x: model(x) + shift)
    huge = hm.Problem(torch.nn.Linear(30, 5).double(), "squared", 1e30 * inputs, targets)
    float32 = hm.Problem(network().float(), "squared", inputs, targets, dtype=torch.float32)
    for problem in (stubborn, shifted, huge, float32):
        assert hm.loss_hessian(problem).in_single_precision() is None
    hessian = hm.loss_hessian(hm.Problem(network(), "squared", inputs, targets))
    assert hessian.in_single_precision() is not None
    hessian.to_dense()
    assert hessian.in_single_precision() is not None  # whatever was called before


def test_a_large_network_goes_by_float32_unasked() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(100, 100), torch.nn.Tanh(), torch.nn.Linear(100, 5)).double()
    hessian = hm.loss_hessian(hm.Problem(model, "cross_entropy", torch.randn(40, 100).double(), torch.arange(40) % 5))
    loose, tight = (top_eigenpairs(hessian, 4, tolerance=tolerance) for tolerance in (1e-3, 1e-4))
    assert loose.num_products - loose.num_single_products == 1 + 3  # one more asks whether it is symmetric
    assert tight.num_products - tight.num_single_products == 5
    exact = top_eigenpairs(hessian, 4)
    assert exact.num_single_products == 0
    for found in (loose, tight):
        assert found.converged
        assert np.abs(found.eigenvalues - exact.eigenvalues).max() <= found.residuals.max()
