"""Eigenpairs, decoupling, correspondence, overlaps and clusters of layers, against dense linear algebra."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from hessmap.errors import InvalidInput, UnknownName, UnsupportedNetwork
from hessmap.layers import (
    LayerHessian,
    downstream_weights,
    layer_factors,
    layer_hessian,
    logit_gradients,
    mean_output_hessian,
    require_logits,
)
from hessmap.layers.comparison import autocorrelation, best_kronecker_product, class_outliers, decoupling
from hessmap.layers.eigenpairs import layer_eigenpairs, layer_eigenpairs_bytes
from hessmap.layers.stored_samples import StoredPatches
from hessmap.measurement import spectrum, subspace_overlap
from hessmap.measurement.overlap import overlap_curve, overlap_of_models
from hessmap.problem.problem import Problem
from hessmap.records import Record
from layer_problems import network, problem


@cache
def hessian(name: str = "2") -> LayerHessian:
    return layer_hessian(problem(), name)


@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize("name", ["0", "2", "4"])
def test_layer_eigenpairs_are_those_of_the_dense_block(name: str, dead: bool) -> None:
    given = layer_hessian(problem(dead=dead), name)
    known = spectrum(given.to_dense()).eigenvalues
    for count in (1, 7, given.size):
        found = layer_eigenpairs(given, count, tolerance=1e-10)
        assert found.converged
        assert found.size == given.size
        assert_allclose(found.eigenvalues, known[:count], atol=1e-12 * known[0])
        rest = given @ torch.from_numpy(np.array(found.eigenvectors)) - torch.from_numpy(
            found.eigenvectors * found.eigenvalues
        )
        assert float(rest.norm(dim=0).max()) <= 1e-10 * known[0]
        assert np.abs(found.eigenvectors.T @ found.eigenvectors - np.eye(count)).max() < 1e-12


@pytest.mark.parametrize("form", ["patches", "jacobians"])
def test_products_in_single_precision_are_used_from_a_millionth_on(form: str) -> None:
    given = layer_hessian(problem(), "0")
    if form == "jacobians":
        given.stored = [part for stored in given.stored for part in stored.jacobian_parts()]
    known = spectrum(given.to_dense()).eigenvalues
    vectors = torch.eye(given.size, dtype=torch.float64)
    rounded = given.in_single_precision().matmat(vectors)
    assert rounded.dtype == torch.float64
    assert 1e-9 < float((rounded - given.to_dense()).norm()) / known[0] < 1e-6
    found = layer_eigenpairs(given, 8, tolerance=1e-6)
    rest = given @ torch.from_numpy(np.array(found.eigenvectors)) - torch.from_numpy(
        found.eigenvectors * found.eigenvalues
    )
    assert found.converged
    assert float(rest.norm(dim=0).max()) <= 1e-6 * known[0]
    assert 1e-9 * known[0] < found.residuals.max() <= 1e-6 * known[0]


def test_single_precision_that_is_too_rough_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    given = layer_hessian(problem(), "0")
    double = spectrum(given.to_dense()).eigenvalues
    broken = given.compressed(torch.eye(8).double(), torch.eye(9).double())
    broken.penalty = 1e-4 * double[0]
    monkeypatch.setattr(given, "in_single_precision", lambda: broken)
    found = layer_eigenpairs(given, 5, tolerance=1e-6)
    assert_allclose(found.eigenvalues, double[:5], atol=1e-11 * double[0])


def test_directions_that_are_never_used_are_left_out() -> None:
    given = layer_hessian(problem(dead=True), "0")
    seen: list[tuple[int, int]] = []
    original = given.compressed

    def watched(outputs: torch.Tensor, inputs: torch.Tensor, precision: torch.dtype) -> object:
        seen.append((outputs.shape[1], inputs.shape[1]))
        return original(outputs, inputs, precision)

    given.compressed = watched  # type: ignore[method-assign,assignment]
    layer_eigenpairs(given, 5)
    assert seen[-1] == (7, 7)
    assert layer_eigenpairs_bytes(given, 5) < layer_eigenpairs_bytes(hessian("0"), 5) + given.stored_bytes


def test_a_wrong_compression_is_noticed_and_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    given = hessian("0")
    known = spectrum(given.to_dense()).eigenvalues
    cut = torch.eye(8, dtype=torch.float64)[:, :6], torch.eye(9, dtype=torch.float64)
    monkeypatch.setattr("hessmap.layers.eigenpairs._active_directions", lambda _: cut)
    assert_allclose(layer_eigenpairs(given, 3).eigenvalues, known[:3], rtol=1e-8)


def test_too_many_eigenpairs_are_refused() -> None:
    with pytest.raises(InvalidInput, match="count must be between 1 and the size 56 of the layer; got 57"):
        layer_eigenpairs(hessian(), 57)
    few = layer_hessian(problem(num_samples=8), "2")
    with pytest.raises(InvalidInput, match="need at least as many samples as eigenpairs; there are 8 samples"):
        layer_eigenpairs(few, 9)


def van_loan(given: LayerHessian) -> tuple[float, np.ndarray]:
    """Singular values of the rearranged Hessian, and the nearest Kronecker product, by a dense decomposition."""
    outputs, inputs = given.weight_shape
    blocks = given.to_dense().numpy().reshape(outputs, inputs, outputs, inputs).transpose(0, 2, 1, 3)
    left, sizes, right = np.linalg.svd(blocks.reshape(outputs**2, inputs**2), full_matrices=False)
    nearest = sizes[0] * np.kron(left[:, 0].reshape(outputs, outputs), right[0].reshape(inputs, inputs))
    return float(sizes[0]), nearest


@pytest.mark.parametrize("name", ["0", "2", "4"])
def test_the_best_kronecker_product_is_that_of_the_rearranged_matrix(name: str) -> None:
    given = hessian(name)
    found = best_kronecker_product(given)
    sigma, nearest = van_loan(given)
    assert found.converged
    assert found.sigma == pytest.approx(sigma, rel=1e-10)
    assert_allclose(found.product.to_dense(), nearest, atol=1e-5 * sigma)
    for factor in (found.product.output_factor, found.product.input_factor):
        assert float(torch.linalg.eigvalsh(factor)[0]) > -1e-12 * float(factor.norm())


@pytest.mark.parametrize("name", ["0", "2"])
def test_decoupling_measures_both_products_against_the_true_block(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = hessian(name)
    found = decoupling(given, 6, tolerance=1e-10)
    dense = given.to_dense()
    pairs = (
        (found.expectation, given.kronecker_approximation().to_dense()),
        (found.best, torch.tensor(van_loan(given)[1])),
    )
    true = spectrum(dense, vectors=True).eigenvectors
    for fit, product in pairs:
        error = product - dense
        assert fit.frobenius_error == pytest.approx(float(error.norm() / dense.norm()), rel=1e-6)
        norms = [float(torch.linalg.matrix_norm(matrix, 2)) for matrix in (error, dense)]
        assert fit.spectral_error == pytest.approx(norms[0] / norms[1], rel=1e-4)
        own = spectrum(product, vectors=True)
        assert_allclose(fit.eigenvalues, own.eigenvalues[:6], rtol=1e-5)
        overlaps = [subspace_overlap(true[:, :k], own.eigenvectors[:, :k]).value for k in range(1, 7)]
        assert_allclose(fit.overlap, overlaps, atol=1e-4)
    assert found.best.frobenius_error <= found.expectation.frobenius_error
    assert Record.from_json(found.to_json()) == found
    # Without the sum over all entries the Frobenius norm is estimated, with its standard error.
    monkeypatch.setattr("hessmap.layers.comparison._EXACT_SIZE", 0)
    estimated = decoupling(given, 6, tolerance=1e-10).expectation
    assert estimated.frobenius_standard_error > 0
    difference = abs(estimated.frobenius_error - found.expectation.frobenius_error)
    assert difference <= 5 * estimated.frobenius_standard_error


def test_a_kronecker_hessian_decouples_exactly() -> None:
    one = Problem(network(), "cross_entropy", problem().inputs[:1], problem().targets[:1])
    found = decoupling(layer_hessian(one, "2"), 1)
    for fit in (found.expectation, found.best):
        assert fit.frobenius_error < 1e-7
        assert fit.spectral_error < 1e-12
        assert fit.overlap[0] == pytest.approx(1)


def test_overlap_curves_are_overlaps_at_every_dimension() -> None:
    rng = np.random.default_rng(3)
    bases = [np.linalg.qr(rng.standard_normal((40, 12)))[0] for _ in range(4)]
    found = overlap_curve(bases[0], bases[1])
    single = [subspace_overlap(bases[0][:, :k], bases[1][:, :k]).value for k in range(1, 13)]
    assert_allclose(found.values, single, atol=1e-14)
    assert found.at(3) == found.values[2]
    assert_allclose(found.chance, np.arange(1, 13) / 40)
    many = overlap_of_models(bases)
    assert many.num_pairs == 6
    curves = np.stack([overlap_curve(bases[i], bases[j]).values for i in range(4) for j in range(i)])
    assert_allclose(many.mean, curves.mean(0))
    assert_allclose(many.spread, curves.std(0, ddof=1))
    assert many.peak == int(curves.mean(0).argmax()) + 1
    with pytest.raises(InvalidInput, match="a comparison needs two models or more; got 1"):
        overlap_of_models(bases[:1])
    with pytest.raises(InvalidInput, match="the columns must be orthonormal"):
        overlap_curve(2 * bases[0], bases[1])


def test_random_subspaces_overlap_by_chance() -> None:
    rng = np.random.default_rng(1)
    bases = [np.linalg.qr(rng.standard_normal((30, 10)))[0] for _ in range(40)]
    found = overlap_of_models(bases)
    assert_allclose(found.mean, found.chance, rtol=0.1)


def test_autocorrelation_bound_holds_for_layers_and_for_convolutions() -> None:
    factors = layer_factors(problem(), "2")
    found = autocorrelation(factors.input_factor, factors.mean_input)
    assert found.eigenvalue_ratio >= found.ratio_bound > 1
    assert found.squared_cosine > 0.9
    patches = np.abs(np.random.default_rng(0).standard_normal((20, 5, 6)))
    moment = np.einsum("npa,npb->ab", patches, patches) / 20
    found = autocorrelation(moment, patches.mean(axis=0))
    assert found.eigenvalue_ratio >= found.ratio_bound > 0
    with pytest.raises(InvalidInput, match="a second moment must be square"):
        autocorrelation(moment, np.ones(5))


def test_outliers_are_counted_where_the_eigenvalues_fall() -> None:
    found = class_outliers(np.array([8.0, 7.0, 6.0, 0.5, 0.4, 0.3]), num_classes=4)
    assert (found.num_outliers, found.ratio, found.largest_ratio) == (3, 12.0, 12.0)
    assert found.share == pytest.approx(21 / 22.2)
    for values, share in (([3.0, 2.0, -5.0], 0.5), ([1.0, 1.0, -2.0 + 1e-9], 0.5), ([-1.0, -2.0, -3.0], 0.0)):
        assert class_outliers(np.array(values), num_classes=3).share == pytest.approx(share)
    assert class_outliers(np.zeros(3), num_classes=3).share == 0.0
    last = spectrum(layer_factors(problem(), "4").output_factor).eigenvalues
    assert class_outliers(last, num_classes=4).ratio == np.inf
    with pytest.raises(InvalidInput, match="the outliers of 9 classes need as many eigenvalues"):
        class_outliers(last, num_classes=9)


def test_logit_gradients_sum_to_the_output_factor_and_their_means_hold_less() -> None:
    given = problem()
    factors = layer_factors(given, "2")
    found = logit_gradients(given, "2")
    assert found.total == pytest.approx(float(factors.output_factor.trace()), rel=1e-12)
    held = torch.einsum("i,ijm,ijk->mk", found.class_weights, found.means, found.means)
    rest = torch.linalg.eigvalsh(factors.output_factor - held)
    assert float(rest[0]) > -1e-14  # class means leave out the variance within classes
    assert float(rest[-1]) > 1e-3 * float(factors.output_factor.norm())
    of_weights = logit_gradients(given, "2", space="weights")
    assert of_weights.total == pytest.approx(hessian("2").trace, rel=1e-12)
    assert of_weights.means.shape == (4, 4, 56)
    with pytest.raises(UnknownName, match="space must be one of outputs, weights; got 'logits'"):
        logit_gradients(given, "2", space="logits")


def test_outputs_that_are_not_logits_are_refused() -> None:
    model = network()
    inputs, labels = problem().inputs, problem().targets
    with pytest.raises(InvalidInput, match="outputs are logits under cross-entropy with labels; the loss is 'squared'"):
        require_logits(Problem(model, "squared", inputs, labels))
    with pytest.raises(InvalidInput, match="the outputs look like probabilities"):
        mean_output_hessian(Problem(nn.Sequential(model, nn.Softmax(1)), "cross_entropy", inputs, labels))
    with pytest.raises(InvalidInput, match="the outputs look like logarithms of probabilities"):
        logit_gradients(Problem(nn.Sequential(model, nn.LogSoftmax(1)), "cross_entropy", inputs, labels), "0.2")


def test_the_tail_behind_a_layer_has_weights_and_activities() -> None:
    given = problem()
    tail = downstream_weights(given, "0")
    assert [tuple(weight.shape) for weight in tail.weights] == [(7, 8), (4, 7)]
    first = given.inputs @ given.named["0.weight"].T + given.named["0.bias"]
    assert_allclose(tail.derivatives[0], (first > 0).double().mean(0), atol=1e-14)
    assert downstream_weights(given, "4").weights == ()
    normed = nn.Sequential(nn.Linear(9, 5), nn.ReLU(), nn.BatchNorm1d(5, affine=False), nn.Linear(5, 4)).double().eval()
    normed[2].running_var.fill_(4.0)
    slopes = downstream_weights(Problem(normed, "cross_entropy", given.inputs, given.targets), "0").derivatives
    assert float(slopes[0].max()) <= 0.5
    mixed = nn.Sequential(nn.Linear(9, 5), nn.Softmax(1), nn.Linear(5, 4)).double()
    with pytest.raises(UnsupportedNetwork, match="units are mixed on the way to '2'"):
        downstream_weights(Problem(mixed, "cross_entropy", given.inputs, given.targets), "0")
    convolved = nn.Sequential(nn.Unflatten(1, (1, 9)), nn.Conv1d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(14, 4))
    with pytest.raises(UnsupportedNetwork, match="it has convolutions, tokens or shared weights"):
        downstream_weights(Problem(convolved, "cross_entropy", given.inputs, given.targets), "1")


def test_memory_of_a_product_does_not_grow_with_the_samples() -> None:
    held = hessian("0").stored[0]
    assert isinstance(held, StoredPatches)
    assert held.num_bytes == 8 * 80 * (3 * 8 + 9)


def stopped_problem(inputs: int, outputs: int, num_dead: int, scale: float = 1.0) -> Problem:
    """A layer some of whose units never fire."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(inputs + 10 * outputs)
        model = nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, 3)).double()
        with torch.no_grad():
            model[0].bias[:num_dead] = -100.0
        data = scale * torch.randn(40, inputs, dtype=torch.float64)
    return Problem(model, "cross_entropy", data, torch.arange(40) % 3)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize(
    ("inputs", "outputs", "num_dead"),
    [(4, 4, 1), (4, 4, 4), (3, 6, 2), (6, 3, 1), (6, 3, 3), (2, 8, 2), (4, 5, 1), (1, 9, 8), (9, 1, 1), (8, 8, 1)],
)
def test_dead_units_leave_the_eigenpairs_of_the_others(
    inputs: int, outputs: int, num_dead: int, tolerance: float
) -> None:
    given = layer_hessian(stopped_problem(inputs, outputs, num_dead), "0")
    known = spectrum(given.to_dense()).eigenvalues
    for count in range(1, min(given.size, given.num_samples) + 1):
        found = layer_eigenpairs(given, count, tolerance=tolerance)
        assert found.converged
        assert_allclose(found.eigenvalues, known[:count], atol=2 * tolerance * known[0])
        vectors = found.eigenvectors
        rest = given.to_dense().numpy() @ vectors - vectors * found.eigenvalues
        assert np.linalg.norm(rest, axis=0).max() <= 1.1 * tolerance * max(known[0], 1e-300)
        assert np.abs(vectors.T @ vectors - np.eye(count)).max() < 1e-10


@pytest.mark.parametrize(("inputs", "outputs", "num_dead"), [(4, 4, 1), (4, 4, 4), (6, 3, 2), (1, 9, 8)])
def test_decoupling_of_layers_with_dead_units(inputs: int, outputs: int, num_dead: int) -> None:
    given = layer_hessian(stopped_problem(inputs, outputs, num_dead), "0")
    dense = given.to_dense()
    for count in (1, 2, given.size):
        found = decoupling(given, count)
        for fit, product in ((found.expectation, given.kronecker_approximation()), (found.best, None)):
            assert np.isfinite([fit.spectral_error, fit.frobenius_error]).all()
            if product is not None and float(dense.norm()):
                error = float((product.to_dense() - dense).norm() / dense.norm())
                assert fit.frobenius_error == pytest.approx(error, rel=1e-6)


def test_a_layer_whose_inputs_are_all_zero_has_no_curvature() -> None:
    given = layer_hessian(stopped_problem(3, 4, 0, scale=0.0), "0")
    found = decoupling(given, 3)
    assert (found.eigenvalues == 0).all()
    assert (found.best.frobenius_error, found.expectation.spectral_error) == (0.0, 0.0)
