"""The stored cases of correspondence matrices, rank-one ratios and matricisation; full factors of the same network."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from hessmap.layers import layer_factors, layer_hessian
from hessmap.measurement import spectrum
from hessmap_research.instruments.matricisation import (
    full_factors,
    input_correspondence,
    matricised,
    output_correspondence,
    rank_one_ratios,
)
from stored_layer_cases import small_problem, stored, tolerance


def case(name: str) -> tuple[dict, float]:
    return stored(name), tolerance(name)


def test_correspondence_matrices_and_rank_one_ratios() -> None:
    values, tol = case("eq265_266_corr")
    ratios, ratio_tol = case("fig21_rank1_ratio")
    problem = small_problem()
    hessian = layer_hessian(problem, "2")
    vectors = spectrum(hessian, vectors=True).eigenvectors
    product = hessian.kronecker_approximation()
    of_inputs = input_correspondence(vectors, product.input_eigenpairs[1])
    of_outputs = output_correspondence(vectors, product.output_eigenpairs[1])
    assert_allclose(of_inputs[:, :3].T, values["Corr_x_cols0to2"], atol=tol)
    assert_allclose(of_outputs[:, :3].T, values["Corr_m_cols0to2"], atol=tol)
    for matrix, other in ((of_inputs, 4), (of_outputs, 4)):
        assert_allclose(matrix.sum(axis=0), 1, atol=tol)
        assert_allclose(matrix.sum(axis=1), other, atol=tol)
    assert_allclose(rank_one_ratios(vectors, (4, 4))[:3], ratios["ratio"], atol=ratio_tol)


def test_matricisation_strides_by_the_number_of_inputs() -> None:
    values, tol = case("def2_2_mat")
    found = matricised(np.arange(6.0)[:, None], (2, 3))[0]
    assert_allclose(found, values["Mat"], atol=tol)
    assert found[1, 0] == values["correct_entry_2_1"] != values["paper_formula_entry_2_1_1based"]


def test_full_output_factor_has_the_layers_on_its_diagonal() -> None:
    problem = small_problem()
    found = full_factors(problem)
    start = 0
    for name, layer in zip(("0", "2", "4"), found.layers, strict=True):
        place = slice(start, start + layer.num_outputs)
        assert_allclose(found.output_factor[place, place], layer_factors(problem, name).output_factor, atol=1e-14)
        start += layer.num_outputs
