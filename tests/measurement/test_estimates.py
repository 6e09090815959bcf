"""Estimates from random probes, against matrices whose spectrum is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hessmap as hm
from hessmap.errors import InvalidInput, UnknownName
from hessmap.records import DensityEstimate, Record, SpectralEstimate
from known_spectra import KNOWN_MATRICES, NAMES, KnownMatrix, known

LARGE = known("falling", *(10.0 ** -np.linspace(0, 6, 90)), *(-0.1 * np.ones(30)), zeros=80)
WIDE = known("bulk of 300", *np.linspace(0.5, 1.5, 296), 20.0, 30.0, 40.0, 50.0)
every_matrix = pytest.mark.parametrize("case", KNOWN_MATRICES, ids=NAMES)
not_empty = pytest.mark.parametrize("case", [case for case in KNOWN_MATRICES if len(case.eigenvalues)])


def covers(found: SpectralEstimate, truth: float, slack: float) -> bool:
    """Within twice the half-width of the interval: a seed in twenty falls outside of the interval itself."""
    low, high = found.interval
    return abs(found.value - truth) <= (high - low) + slack


@pytest.mark.parametrize("method", ["auto", "hutchinson", "hutch++", "exact"])
@every_matrix
def test_trace_of_known_spectra(case: KnownMatrix, method: str) -> None:
    found = hm.trace_estimate(case.matrix, method=method, max_products=400)
    assert covers(found, float(case.eigenvalues.sum()), 1e-12 * case.norm * len(case.eigenvalues))
    assert found.num_products <= 400 + 48


@pytest.mark.parametrize("method", ["hutchinson", "hutch++"])
def test_a_trace_stops_at_the_error_asked_for_and_says_when_it_cannot(method: str) -> None:
    found = hm.trace_estimate(WIDE.matrix, relative_error=0.01, method=method, max_products=2000)
    assert found.reached
    assert found.standard_error <= 0.01 * max(abs(found.value), float(np.linalg.norm(WIDE.eigenvalues)) * 1.1)
    assert covers(found, float(WIDE.eigenvalues.sum()), 0.0)
    short = hm.trace_estimate(WIDE.matrix, relative_error=1e-9, method=method, max_products=100)
    assert not short.reached
    assert short.num_products <= 100


@pytest.mark.parametrize("method", ["hutchinson", "hutch++"])
def test_a_trace_near_zero_stops_at_an_error_of_the_norm(method: str) -> None:
    matrix = WIDE.matrix - np.trace(WIDE.matrix) / len(WIDE.matrix) * np.eye(len(WIDE.matrix))
    norm = float(np.linalg.norm(matrix))
    found = hm.trace_estimate(matrix, relative_error=0.1, method=method, max_products=2000)
    assert found.reached
    assert found.asked == pytest.approx(0.1 * norm, rel=0.3)
    assert found.num_products < 1000
    assert abs(found.value) <= 5 * found.standard_error
    assert hm.trace_estimate(matrix, relative_error=1e-6, method=method).num_products <= 100


@pytest.mark.parametrize("method", ["hutchinson", "hutch++"])
def test_standard_errors_of_traces_are_true(method: str) -> None:
    """Over 40 seeds the spread of the values is what they say of themselves, and their mean is right."""
    matrix, truth = WIDE.matrix, float(WIDE.eigenvalues.sum())
    asked = {"relative_error": 0.05, "method": method, "max_products": 2000}
    found = [hm.trace_estimate(matrix, seed=seed, **asked) for seed in range(40)]
    errors = np.array([one.value - truth for one in found])
    claimed = np.array([one.standard_error for one in found])
    assert 0.6 < np.sqrt(np.mean(errors**2) / np.mean(claimed**2)) < 1.6
    assert abs(errors.mean()) < 4 * np.sqrt(np.mean(claimed**2) / 40)


def test_known_eigenpairs_take_the_place_of_a_sketch() -> None:
    truth = float(WIDE.eigenvalues.sum())
    pairs = hm.top_eigenpairs(WIDE.matrix, 4, tolerance=1e-2)  # Ritz values sum to the trace, converged or not
    found = [hm.trace_estimate(WIDE.matrix, known=pairs, seed=seed) for seed in range(40)]
    errors, claimed = np.array([one.value - truth for one in found]), np.array([one.standard_error for one in found])
    assert all(one.reached and one.num_products < 64 for one in found)  # a sketch takes 64 before the first probe
    assert 0.6 < np.sqrt(np.mean(errors**2) / np.mean(claimed**2)) < 1.6
    assert abs(errors.mean()) < 4 * np.sqrt(np.mean(claimed**2) / 40)
    tiny = hm.trace_estimate(1e-14 * WIDE.matrix, known=hm.top_eigenpairs(1e-14 * WIDE.matrix, 4))
    assert abs(tiny.value - 1e-14 * truth) < 5 * tiny.standard_error
    with pytest.raises(InvalidInput, match="of the same matrix, .*; its size is 50, theirs 300"):
        hm.trace_estimate(np.eye(50), known=pairs)
    with pytest.raises(InvalidInput, match="known eigenpairs .* need method='hutch\\+\\+'; method is 'hutchinson'"):
        hm.trace_estimate(WIDE.matrix, method="hutchinson", known=pairs)


def test_a_method_that_is_not_offered_is_answered_with_those_that_are() -> None:
    with pytest.raises(InvalidInput, match=r"'xtrace'.*hutch\+\+|hutch\+\+.*'xtrace'"):
        hm.trace_estimate(WIDE.matrix, method="xtrace")


@pytest.mark.parametrize("method", ["auto", "hutchinson", "hutch++", "exact"])
@every_matrix
def test_diagonal_of_known_spectra(case: KnownMatrix, method: str) -> None:
    found = hm.measurement.diagonal_estimate(case.matrix, method=method, max_products=300)
    error = np.abs(found.values - np.diag(case.matrix)) / (case.norm or 1.0)
    claimed = found.standard_errors / (case.norm or 1.0)
    assert np.linalg.norm(error) <= 3 * np.linalg.norm(claimed) + 1e-11


def test_a_diagonal_stops_at_the_error_asked_for() -> None:
    found = hm.measurement.diagonal_estimate(WIDE.matrix, relative_error=0.1)
    assert found.reached
    assert found.relative_error <= 0.1
    assert np.linalg.norm(found.values - np.diag(WIDE.matrix)) < 0.2 * np.linalg.norm(np.diag(WIDE.matrix))


@every_matrix
def test_frobenius_norm_of_known_spectra(case: KnownMatrix) -> None:
    found = hm.measurement.frobenius_norm_estimate(case.matrix)
    truth = case.norm * float(np.linalg.norm(case.eigenvalues / (case.norm or 1.0)))
    assert covers(found, truth, 1e-12 * truth)
    assert found.reached


def test_frobenius_norm_of_a_bulk_is_covered() -> None:
    found = hm.measurement.frobenius_norm_estimate(WIDE.matrix, relative_error=0.003)
    assert found.method == "hutch++"
    assert found.standard_error > 0
    assert covers(found, float(np.linalg.norm(WIDE.eigenvalues)), 0.0)


@not_empty
@pytest.mark.parametrize("method", ["quadrature", "exact"])
def test_density_integrates_to_one_and_its_exact_nodes_are_eigenvalues(case: KnownMatrix, method: str) -> None:
    found = hm.density_estimate(case.matrix, num_probes=4, num_steps=40, method=method)
    assert np.trapezoid(found.density, found.grid) == pytest.approx(1.0, rel=1e-3)
    assert (found.lower <= found.density).all()
    assert (found.density <= found.upper).all()
    for nodes, weights, is_exact in zip(found.nodes, found.weights, found.is_exact, strict=True):
        if is_exact:
            distances = np.abs(nodes[weights > 1e-10][:, None] - case.eigenvalues[None, :]).min(1)
            assert distances.max(initial=0.0) <= 1e-9 * (case.norm or 1.0)
    if case.name != "spread bulk" or method == "exact":
        assert found.is_exact.all()


@pytest.mark.parametrize("keep", [True, False])
def test_band_holds_the_smoothed_density(keep: bool) -> None:
    budget = 2**30 if keep else 8 * 300 * 30
    found = hm.density_estimate(
        WIDE.matrix, num_probes=16, num_steps=60, width=1.0, method="quadrature", memory_budget=budget
    )
    assert found.reorthogonalised is keep
    gaussians = np.exp(-0.5 * (found.grid[:, None] - WIDE.eigenvalues) ** 2) / np.sqrt(2 * np.pi)
    truth = gaussians.mean(1)
    matters = truth > 1e-6 * truth.max()
    inside = (truth >= found.lower * (1 - 1e-9)) & (truth <= found.upper * (1 + 1e-9))
    assert inside[matters].mean() > 0.8
    assert np.abs(found.density - truth).max() < 0.1 * truth.max()


def test_spectral_sums_of_a_density_and_of_the_matrix_agree() -> None:
    density = hm.density_estimate(WIDE.matrix, num_probes=8, num_steps=64, method="quadrature")
    one = hm.measurement.log_determinant_estimate(density, 1.0)
    other = hm.measurement.log_determinant_estimate(WIDE.matrix, 1.0, method="quadrature")
    truth = float(np.log(WIDE.eigenvalues + 1.0).sum())
    for found in (one, other):
        assert covers(found, truth, 0.0)
        assert 0 < found.standard_error < 0.1 * truth
    assert one.asked is None
    assert other.reached


@not_empty
def test_log_determinant_of_known_spectra(case: KnownMatrix) -> None:
    shift = 2 * case.norm or 1.0
    found = hm.measurement.log_determinant_estimate(case.matrix, shift)
    assert covers(found, float(np.log(case.eigenvalues + shift).sum()), 1e-9)


MULTIPLE = known("thirty-fold", *np.full(30, 5.0), *np.full(20, -2.0), *np.full(25, 1.0), *np.full(25, 0.5), zeros=300)


def test_estimates_are_right_for_an_eigenvalue_of_thirty_copies() -> None:
    """One Krylov sequence sees a single copy of each; the weights of the quadrature must contain the others."""
    matrix, values = MULTIPLE.matrix, MULTIPLE.eigenvalues
    density = hm.density_estimate(matrix, num_steps=20, num_probes=40, method="quadrature")
    assert density.is_exact.all()  # five different values: every probe exhausts its space
    share = [float(np.where(np.abs(density.nodes - at) < 1e-6, density.weights, 0).sum(1).mean()) for at in (5, -2, 0)]
    spread = np.sqrt(2 * np.array([30, 20, 300])) / 400 / 40**0.5  # of the weight of a space of some dimensions
    assert (np.abs(np.array(share) - np.array([30, 20, 300]) / 400) < 5 * spread).all()
    assert covers(hm.trace_estimate(matrix), float(values.sum()), 0.0)
    assert covers(hm.measurement.frobenius_norm_estimate(matrix, method="hutch++"), float(np.linalg.norm(values)), 0.0)
    magnitudes = np.abs(values)
    dimension, log_determinant = float((magnitudes / (magnitudes + 0.5)).sum()), float(np.log(values + 3).sum())
    for method in ("quadrature", "auto"):
        assert covers(hm.measurement.rank_estimate(matrix, method=method), 100, 0.0)
        assert covers(hm.measurement.effective_dimension_estimate(matrix, 0.5, method=method), dimension, 1e-9)
        assert covers(hm.measurement.log_determinant_estimate(matrix, 3.0, method=method), log_determinant, 1e-9)
    solution = hm.measurement.krylov_solve(matrix, np.ones(400), shift=1.0)
    assert solution.converged
    assert (hm.top_eigenpairs(matrix, 31).eigenvalues > 4.99).sum() == 30


def test_log_determinant_refuses_what_is_not_positive_definite() -> None:
    with pytest.raises(InvalidInput, match="must be positive definite; there is an eigenvalue at or below"):
        hm.measurement.log_determinant_estimate(np.diag([1.0, -2.0, 3.0]), shift=1.5)


@not_empty
def test_rank_and_effective_dimension_of_known_spectra(case: KnownMatrix) -> None:
    tolerance = 1e-10
    rank = hm.measurement.rank_estimate(case.matrix, relative_tolerance=tolerance)
    assert covers(rank, case.rank, 1e-6)
    for method in ("quadrature", "exact"):
        density = hm.density_estimate(case.matrix, num_probes=6, method=method)
        assert covers(hm.measurement.rank_estimate(density, relative_tolerance=tolerance), case.rank, 1e-6)
    epsilon = 0.1 * case.norm or 1.0
    found = hm.measurement.effective_dimension_estimate(case.matrix, epsilon)
    magnitudes = np.abs(case.eigenvalues)
    assert covers(found, float((magnitudes / (magnitudes + epsilon)).sum()), 1e-8)


def test_rank_of_a_crowded_spectrum_is_covered_by_its_interval() -> None:
    found = hm.measurement.rank_estimate(LARGE.matrix, relative_tolerance=1e-3, num_steps=20, method="quadrature")
    truth = int((np.abs(LARGE.eigenvalues) > 1e-3).sum())
    assert found.method_error > 0
    assert found.interval[0] <= truth <= found.interval[1]


@not_empty
@pytest.mark.parametrize("relative_shift", [0.37, 3.0])
def test_krylov_solve_solves_known_systems(case: KnownMatrix, relative_shift: float) -> None:
    shift = relative_shift * case.norm or 1.0
    right = np.random.default_rng(0).standard_normal((len(case.eigenvalues), 2))
    found = hm.measurement.krylov_solve(case.matrix, right, shift)
    assert found.converged
    residual = case.matrix @ found.solution + shift * found.solution - right
    assert np.linalg.norm(residual) <= 1e-7 * np.linalg.norm(right)


def test_krylov_solve_restarts_and_says_when_there_is_no_solution() -> None:
    right = np.random.default_rng(0).standard_normal(300)
    found = hm.measurement.krylov_solve(WIDE.matrix, right, 0.01, max_basis=8)
    assert found.converged
    assert found.num_restarts > 0
    singular = hm.measurement.krylov_solve(np.diag([1.0, 2.0, 0.0]), np.ones(3))
    assert not singular.converged
    assert singular.relative_residuals[0] == pytest.approx(1 / np.sqrt(3), rel=1e-6)
    assert (
        not hm.measurement.krylov_solve(np.diag([1.0, 2.0, 0.0]), np.array([1.0, 1.0, 0.0])).relative_residuals[0]
        > 1e-8
    )


def test_gradient_overlap_and_sharpness() -> None:
    matrix = WIDE.matrix
    top = hm.top_eigenpairs(matrix, 4)
    gradient = top.eigenvectors @ np.array([1.0, 2.0, 0.0, 0.0]) * 1e-200
    assert hm.measurement.gradient_overlap(gradient, top).value == pytest.approx(1.0, rel=1e-12)
    assert hm.measurement.gradient_overlap(np.zeros(300), top).value == 0.0
    with pytest.raises(InvalidInput, match="the columns must be orthonormal"):
        hm.measurement.gradient_overlap(gradient, 2 * top.eigenvectors)
    found = hm.sharpness(matrix)
    assert found.value == pytest.approx(50.0, rel=1e-9)
    assert found.largest_stable_step == pytest.approx(0.04, rel=1e-9)
    assert found.converged
    assert hm.sharpness(-np.eye(3)).largest_stable_step == float("inf")


def test_the_same_seed_gives_the_same_record_and_it_survives_json() -> None:
    found = [
        hm.trace_estimate(WIDE.matrix, seed=3),
        hm.measurement.diagonal_estimate(WIDE.matrix, relative_error=0.3, seed=3),
        hm.density_estimate(WIDE.matrix, num_probes=2, num_steps=5, seed=3),
        hm.measurement.krylov_solve(WIDE.matrix, np.ones(300), 1.0),
    ]
    for record in found:
        assert Record.from_json(record.to_json()) == record
    assert hm.trace_estimate(WIDE.matrix, seed=3) == found[0]
    assert hm.trace_estimate(WIDE.matrix, seed=4) != found[0]


def test_bad_questions_get_a_sentence() -> None:
    with pytest.raises(UnknownName, match="method must be one of"):
        hm.trace_estimate(np.eye(3), method="hutch")
    with pytest.raises(InvalidInput, match="one of relative_error and absolute_error must be positive"):
        hm.trace_estimate(np.eye(3), relative_error=0.0)
    with pytest.raises(InvalidInput, match="a measurement needs a square matrix"):
        hm.trace_estimate(np.ones((2, 3)))
    with pytest.raises(InvalidInput, match="num_probes must be an integer of at least 2; got 1"):
        hm.density_estimate(np.eye(3), num_probes=1)
    with pytest.raises(InvalidInput, match="epsilon must be positive"):
        hm.measurement.effective_dimension_estimate(np.eye(3), 0.0)


def test_the_choice_of_method_is_said_before() -> None:
    lines: list[str] = []
    found = hm.measurement.auto_spectrum(WIDE.matrix, log=lines.append)
    assert found.method == "dense"
    assert lines[0].startswith("dense: size 300 is at most 6000 and the matrix fits the memory; about 1.4 MiB and ")
    density = hm.measurement.auto_spectrum(WIDE.matrix, method="quadrature", log=lines.append)
    assert isinstance(density, DensityEstimate)
    top = hm.measurement.auto_spectrum(WIDE.matrix, method="lanczos", count=2, log=lines.append)
    assert top.eigenvalues[0] == pytest.approx(50)


@pytest.mark.parametrize("count", [5, 20])
@pytest.mark.parametrize("width", [1, 4, 16])
def test_the_predicted_products_are_about_those_that_are_made(count: int, width: int) -> None:
    """Within the spread that benchmarks/lanczos_products.py found between operators, and a little more."""

    class Block(hm.linalg.DenseOperator):
        block_size = width

    inputs, labels = hm.datasets.digits(num_samples=80)
    model = hm.FullyConnected((64, 12, 10), activation="relu").build(seed=0)
    problem = hm.Problem(model, "cross_entropy", inputs, labels)
    hessian = Block(hm.loss_hessian(problem).to_dense())
    predicted = hm.measurement.choose_method(hessian, count=count, method="lanczos")
    made = hm.top_eigenpairs(hessian, count, which="magnitude")
    assert 0.4 < made.num_products / predicted.num_products < 2
    assert predicted.predicted_seconds == pytest.approx(predicted.num_products * predicted.seconds_per_product)


def test_the_size_decides() -> None:
    class Large(hm.linalg.SymmetricOperator):
        size = 7000

        def matmat(self, vectors: torch.Tensor) -> torch.Tensor:
            return 2 * vectors

    choice = hm.measurement.choose_method(Large())
    assert (choice.method, choice.num_products) == ("quadrature", 1024)
    assert hm.measurement.choose_method(Large(), count=3).method == "lanczos"
    assert hm.measurement.choose_method(np.eye(60)).method == "dense"


def test_a_density_over_more_than_the_range_of_numbers_is_refused() -> None:
    with pytest.raises(
        InvalidInput, match="the range of a density must be a finite number; the eigenvalues go from -1"
    ):
        hm.density_estimate(np.diag([1.5e308, -1.5e308, 1.0, 2.0]), num_steps=4, num_probes=2)
