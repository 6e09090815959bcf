"""Weights that are stored as inputs x outputs (embeddings, bags of them, plain parameters), and layers in float32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import hessmap as hm
from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap.layers import downstream_weights, layer_factors, layer_hessian, logit_gradients, product_of_factors
from hessmap.layers.comparison import best_kronecker_product
from hessmap.maps.curvature_map.layers import measured_factors
from transposed_problems import BUILDS, REPEATED, problem_of


def nearest_product(matrix: Tensor, shape: tuple[int, int]) -> tuple[Tensor, float]:
    """The nearest Kronecker product and its distance, from the singular values of the rearranged matrix."""
    first, second = shape
    rearranged = matrix.reshape(first, second, first, second).transpose(1, 2).reshape(first**2, second**2)
    left, values, right = torch.linalg.svd(rearranged, full_matrices=False)
    product = torch.kron((values[0] * left[:, 0]).view(first, first), right[0].view(second, second))
    return product, float(values[1:].norm())


@pytest.mark.parametrize("name", BUILDS)
def test_decoupling_is_over_the_weight_as_it_is_stored(name: str) -> None:
    problem = problem_of(BUILDS[name])
    hessian = layer_hessian(problem, "words")
    dense = hessian.to_dense()
    assert hessian.layer.is_transposed
    assert hessian.weight_shape[0] == hessian.layer.num_inputs
    expected, distance = nearest_product(dense, hessian.weight_shape)
    best = best_kronecker_product(hessian)
    assert best.converged
    assert float((best.product.to_dense() - expected).norm()) <= 1e-5 * float(expected.norm())
    measured = hm.layers.decoupling(hessian, 2, tolerance=1e-9)
    assert measured.best.frobenius_error == pytest.approx(distance / float(dense.norm()), rel=1e-6)
    product = product_of_factors(layer_factors(problem, "words")).to_dense()
    difference = product - dense
    assert measured.expectation.frobenius_error == pytest.approx(float(difference.norm() / dense.norm()), rel=1e-9)
    spectral = float(torch.linalg.eigvalsh(difference).abs().max() / torch.linalg.eigvalsh(dense).abs().max())
    assert measured.expectation.spectral_error == pytest.approx(spectral, rel=1e-3)
    assert measured.eigenvalues == pytest.approx(torch.linalg.eigvalsh(dense).flip(0)[:2].numpy(), rel=1e-8)


@pytest.mark.parametrize("name", ["embedding", "bag of sums", "projection"])
def test_maps_keep_inputs_and_outputs_apart(name: str) -> None:
    problem = problem_of(BUILDS[name])
    factors = layer_factors(problem, "words")
    values = torch.linalg.eigvalsh(factors.output_factor).flip(0)
    found = measured_factors(problem, hm.loss_hessian(problem).to_dense())[0]["words"]
    assert found.kronecker_overlap is not None
    assert found.outlier_share == pytest.approx(float(values[:2].clamp(min=0).sum() / values.abs().sum()))


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize("function", [layer_factors, layer_hessian, hm.kronecker_approximation, logit_gradients])
def test_an_embedding_that_acts_twice_is_refused_in_one_sentence(name: str, function: Callable[..., object]) -> None:
    problem = problem_of(REPEATED[name])
    with pytest.raises(UnsupportedNetwork, match="must be used once.* is used more than once in one forward pass"):
        function(problem, "words")


@pytest.mark.parametrize("name", BUILDS)
def test_what_needs_a_linear_layer_refuses_others_in_one_sentence(name: str) -> None:
    problem = problem_of(BUILDS[name])
    kind = layer_hessian(problem, "words").layer.kind
    with pytest.raises(InvalidInput, match=f"need a linear layer or a convolution.* is of kind {kind}"):
        logit_gradients(problem, "words")
    with pytest.raises(UnsupportedNetwork, match="weights after layer 'words' must follow each other"):
        downstream_weights(problem, "words")


@pytest.mark.parametrize("name", ["embedding", "piecewise linear", "bag of means", "projection"])
@pytest.mark.parametrize("layer", ["words", "last"])
def test_layers_in_float32_have_eigenpairs_and_a_decoupling(name: str, layer: str) -> None:
    exact, single = (layer_hessian(problem_of(BUILDS[name], dtype=dtype), layer) for dtype in (None, torch.float32))
    expected = torch.linalg.eigvalsh(exact.to_dense()).flip(0)[:2].numpy()
    for found in (hm.layer_eigenpairs(single, 2), hm.layer_eigenpairs(single, 2, tolerance=1e-4)):
        assert found.converged
        assert found.eigenvalues == pytest.approx(expected, rel=1e-4)
    measured, reference = hm.layers.decoupling(single, 2), hm.layers.decoupling(exact, 2)
    assert measured.best_converged
    assert measured.eigenpairs_converged
    assert measured.best.frobenius_error == pytest.approx(reference.best.frobenius_error, rel=1e-3)
    assert measured.expectation.spectral_error == pytest.approx(reference.expectation.spectral_error, rel=1e-3)
