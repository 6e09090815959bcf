"""Every stored numeric case of layer Hessians: theory, curvature and measurement against values found elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits

from hessmap.errors import InvalidInput
from hessmap.hessians.operators import functional_hessian, loss_hessian, outer_product_hessian
from hessmap.layers import (
    KroneckerProduct,
    downstream_weights,
    find_layer,
    layer_factors,
    layer_hessian,
    mean_output_hessian,
)
from hessmap.layers.batches import layer_batch, layer_jacobian
from hessmap.layers.comparison import autocorrelation, decoupling
from hessmap.losses.cross_entropy import CrossEntropy
from hessmap.measurement import spectrum, subspace_overlap
from hessmap.theory import layers as theory
from stored_layer_cases import BY_NAME, convolutional_problem, small_network, small_problem, stored, tolerance

LAYERS = {1: "0", 2: "2", 3: "4"}
# Bounds and divergences of certificates: not of layers.
CERTIFICATES = {name for name in BY_NAME if name.startswith(("invkl", "kl_"))} | {
    "sum_inv_j2",
    "chernoff_mc",
    "table10_T600_BASE",
    "surrogate",
    "logistic_binary",
    "pinsker",
}
# Correspondence and matricisation, which the library does not have.
OF_RESEARCH = {"eq265_266_corr", "fig21_rank1_ratio", "def2_2_mat"}


def case(name: str) -> tuple[dict, float]:
    return stored(name), tolerance(name)


def test_softmax_hessian_and_its_root() -> None:
    """The paper's Q is the transposed root: Q^T Q = A, where Lemma B.12 prints Q Q^T."""
    values, tol = case("eq16_A")
    loss, label = CrossEntropy(), torch.tensor([0])
    logits = torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64).log()
    assert_allclose(loss.hessian(logits, label)[0], values["A"], atol=tol)
    values, tol = case("eq25_Q")
    root = loss.hessian_factor(logits, label)[0].mT.numpy()
    assert_allclose(root, values["Q"], atol=tol)
    assert_allclose(root.T @ root, values["QtQ"], atol=tol)
    assert np.abs(root @ root.T - values["QtQ"]).max() == pytest.approx(values["max_abs_QQt_minus_A"], abs=tol)


def test_forward_pass_of_the_small_network() -> None:
    values, tol = case("net_forward")
    weights, _, inputs, _ = small_network()
    problem = small_problem(1)
    assert_allclose(weights[0][0], values["W0_first_row"], atol=tol)
    assert_allclose(inputs[0], values["X0"], atol=tol)
    assert_allclose(problem.outputs()[0], values["z"], atol=tol)
    assert_allclose(problem.outputs()[0].softmax(0), values["p"], atol=tol)
    assert problem.risk() == pytest.approx(values["loss"], abs=tol)


@pytest.mark.parametrize("place", [1, 3])
def test_output_hessian_of_one_sample(place: int) -> None:
    values, tol = case(f"eq21_M_layer{place}")
    problem = small_problem(1)
    layer = find_layer(problem, LAYERS[place])
    found = layer_jacobian(problem, layer, problem.inputs)
    assert_allclose(found.jacobian[0].detach(), values["G"], atol=tol)
    factors = layer_factors(problem, LAYERS[place])
    assert factors.curvature == "gauss_newton"
    assert_allclose(factors.output_factor, values["M"], atol=tol)
    assert float(factors.output_factor.trace()) == pytest.approx(values["trace"], abs=tol)


@pytest.mark.parametrize("place", [1, 2])
def test_layer_hessian_of_one_sample_is_a_kronecker_product(place: int) -> None:
    values, tol = case(f"eq1_H_layer{place}")
    problem = small_problem(1)
    hessian = layer_hessian(problem, LAYERS[place])
    dense = hessian.to_dense()
    eigenvalues = spectrum(dense).eigenvalues
    assert hessian.trace == pytest.approx(values["trace"], abs=tol)
    assert float(dense.norm()) == pytest.approx(values["fro"], abs=tol)
    assert_allclose(eigenvalues[:2], [values["lam1"], values["lam2"]], atol=tol)
    assert_allclose(dense[values["row_index"]], values["H_row"], atol=tol)
    assert_allclose(dense, hessian.kronecker_approximation().to_dense(), atol=tol)


@pytest.mark.parametrize("place", [1, 3])
def test_decoupling_of_the_small_network(place: int) -> None:
    values, tol = case(f"eq3_decoupling_layer{place}")
    hessian = layer_hessian(small_problem(), LAYERS[place])
    found = decoupling(hessian, 3, tolerance=1e-12)
    assert found.eigenpairs_converged
    assert_allclose(found.eigenvalues, values["lamH"], atol=tol)
    assert_allclose(found.expectation.eigenvalues, values["lamK"], atol=tol)
    assert found.expectation.overlap[1] == pytest.approx(values["overlap2"], abs=tol)
    # The relative error is a norm found to 1e-4; the exact one is compared in full.
    exact = hessian.kronecker_approximation().to_dense() - hessian.to_dense()
    error = float(torch.linalg.matrix_norm(exact, 2) / torch.linalg.matrix_norm(hessian.to_dense(), 2))
    assert error == pytest.approx(values["rel_spec_err"], abs=tol)
    assert found.expectation.spectral_error == pytest.approx(values["rel_spec_err"], rel=1e-7)


def test_kronecker_products_are_indexed_row_by_row() -> None:
    values, tol = case("kron_index")
    assert_allclose(np.kron([[1, 2], [3, 4]], [[0, 5, 6], [6, 7, 8]]), values["K"], atol=tol)
    left, right = torch.tensor([[1.0, 2.0], [2.0, 4.0]]).double(), torch.tensor([[0.0, 5.0], [5.0, 7.0]]).double()
    made = KroneckerProduct(left, right)
    assert_allclose(made.matmat(torch.eye(4).double()), np.kron(left, right), atol=tol)


def test_overlap_is_the_mean_squared_cosine_and_refuses_raw_columns() -> None:
    values, tol = case("def2_1_overlap")
    raw, raw_tol = case("def2_1_nonorth")
    rng = np.random.default_rng(7)
    first, second = (np.linalg.qr(rng.standard_normal((10, 3)))[0] for _ in range(2))
    assert subspace_overlap(first, second).value == pytest.approx(values["overlap"], abs=tol)
    assert_allclose(np.linalg.svd(first.T @ second, compute_uv=False), values["cosines"], atol=tol)
    bases = [rng.standard_normal((10, 3)) for _ in range(2)]
    assert np.square(bases[0].T @ bases[1]).sum() / 3 == pytest.approx(raw["raw"], abs=raw_tol)
    with pytest.raises(InvalidInput, match="the columns must be orthonormal"):
        subspace_overlap(*bases)
    found = subspace_overlap(*(np.linalg.qr(basis)[0] for basis in bases)).value
    assert found == pytest.approx(raw["orthonormalised"], abs=raw_tol)


def test_full_hessian_and_its_two_parts() -> None:
    values, tol = case("eq27_full")
    problem = small_problem()
    whole, outer, functional = (
        made(problem).to_dense() for made in (loss_hessian, outer_product_hessian, functional_hessian)
    )
    assert float(whole.trace()) == pytest.approx(values["trace"], abs=tol)
    norms = [float(part.norm()) for part in (whole, outer, functional)]
    assert_allclose(norms, [values["fro_H"], values["fro_G"], values["fro_Hterm"]], atol=tol)
    assert_allclose(spectrum(whole).eigenvalues[:3], values["top3"], atol=tol)
    for name in LAYERS.values():
        place = problem.layout[f"{name}.weight"]
        assert float(functional[place, place].abs().max()) < tol


def test_weight_only_subspaces_and_output_factor() -> None:
    values, tol = case("heuristic_S")
    printed, printed_tol = case("eq272_Mtilde")
    problem = small_problem()
    tail = downstream_weights(problem, "0")
    product = theory.weight_product(tail.weights, num_outputs=4)
    assert_allclose(product, values["S"], atol=tol)
    factors = layer_factors(problem, "0")
    top = spectrum(factors.output_factor, vectors=True).eigenvectors[:, :2]
    spaces = theory.row_space_without_ones(product), theory.logit_subspace(product)
    overlaps = [subspace_overlap(top, space).value for space in spaces]
    assert_allclose(overlaps, [values["overlap_a"], values["overlap_b"]], atol=tol)
    assert subspace_overlap(*spaces).value == pytest.approx(values["overlap_ab"], abs=tol)
    mean = mean_output_hessian(problem)
    assert_allclose(mean, printed["EA"], atol=printed_tol)
    made = theory.output_factor_from_weights(product, mean, num_activations=2)
    assert_allclose(made, printed["Mtilde"], atol=printed_tol)
    cosine = (made * factors.output_factor.numpy()).sum() / np.linalg.norm(made) / float(factors.output_factor.norm())
    assert cosine == pytest.approx(printed["cos_with_EM"], abs=printed_tol)


def test_convolutional_layer_hessian_and_its_output_factor() -> None:
    values, tol = case("eq29_conv")
    factor, factor_tol = case("eq33_conv_Mtilde")
    problem = convolutional_problem()
    hessian = layer_hessian(problem, "0")
    dense = hessian.to_dense()
    assert hessian.trace == pytest.approx(values["trace"], abs=tol)
    assert float(dense.norm()) == pytest.approx(values["fro"], abs=tol)
    assert_allclose(spectrum(dense).eigenvalues[:3], values["top3"], atol=tol)
    assert_allclose(dense[values["row_index"]], values["H_row"], atol=tol)
    assert_allclose(layer_factors(problem, "0").output_factor, factor["Mtilde"], atol=factor_tol)
    layer = find_layer(problem, "0")
    rows = layer_batch(problem, layer, "gauss_newton", next(problem.batches())).rows[0]  # (rank, positions, channels)
    plain = rows.transpose(1, 2).reshape(-1, 3)  # (rank, channels * positions) cut into threes: mixes them
    assert_allclose(plain.T @ plain / 9, factor["wrong_plain_reshape"], atol=factor_tol)


def test_limits_of_wide_networks_and_row_sums() -> None:
    values, tol = case("thm42_limit")
    assert theory.mean_squared_activity_limit() == pytest.approx(values["Eq2"], abs=tol)
    assert theory.printed_subspace_overlap_limit() == pytest.approx(values["overlap_limit"], abs=tol)
    sums, sums_tol = case("lemmaB1")
    weight = np.random.default_rng(23).standard_normal((1000, 400)) / 20
    assert weight.sum(axis=1).var() == pytest.approx(sums["var"], abs=sums_tol)


def test_autocorrelation_of_rectified_inputs_and_of_digits() -> None:
    values, tol = case("eq264")
    inputs = np.maximum(np.random.default_rng(13).standard_normal((50, 6)) + 0.5, 0)
    found = autocorrelation(inputs.T @ inputs / 50, inputs.mean(axis=0))
    assert found.eigenvalue_ratio == pytest.approx(values["ratio"], abs=tol)
    assert found.ratio_bound == pytest.approx(values["bound"], abs=tol)
    assert found.squared_cosine == pytest.approx(values["cos2"], abs=tol)
    values, tol = case("digits_autocorr")
    digits = load_digits().data[:300] / 16
    found = autocorrelation(digits.T @ digits / 300, digits.mean(axis=0))
    assert found.squared_cosine == pytest.approx(values["cos2"], abs=tol)
    assert found.eigenvalue_ratio == pytest.approx(values["ratio"], abs=tol)
    assert found.ratio_bound == pytest.approx(values["lower_bound"], abs=tol)
    assert found.eigenvalues[0] == pytest.approx(values["lam1"], abs=tol)


def test_rotation_into_the_eigenbasis_of_a_kronecker_product() -> None:
    values, tol = case("eq279_280")
    rng = np.random.default_rng(17)
    left, right = (np.linalg.qr(rng.standard_normal((size, size)))[0] for size in (3, 4))
    vector = rng.standard_normal(12)
    descending = [torch.arange(size, 0, -1).double() for size in (3, 4)]
    factors = [
        torch.from_numpy(basis) @ torch.diag(sizes) @ torch.from_numpy(basis).T
        for basis, sizes in zip((left, right), descending, strict=True)
    ]
    made = KroneckerProduct(*factors)
    found = made.in_eigenbasis(torch.from_numpy(vector))
    assert_allclose(found.abs(), np.abs(values["v"]), atol=tol)  # eigenvectors are known up to their sign
    assert_allclose(made.from_eigenbasis(found), vector, atol=tol)
    spread = np.exp(rng.standard_normal(12))
    divergence = 0.5 * (spread.sum() / 0.1 - 12 + float(found @ found) / 0.1 + 12 * np.log(0.1) - np.log(spread).sum())
    assert divergence == pytest.approx(values["KL_diag"], abs=1e-8)


def test_every_stored_case_of_layers_was_met() -> None:
    used = re.findall(r'= case\(f?"(\w+?)(?:\{place\})?"\)', Path(__file__).read_text())
    others = CERTIFICATES | OF_RESEARCH
    assert others <= set(BY_NAME)
    missed = [name for name in BY_NAME if name not in others and not name.startswith(tuple(used))]
    assert not missed
    assert len(used) + len(OF_RESEARCH) >= 20
