"""Weights that are stored as inputs x outputs (embeddings, bags of them, plain parameters), and layers in float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap.layers import fully_connected_tail, layer_factors, layer_hessian, logit_gradients, product_of_factors
from hessmap.layers.comparison import best_kronecker_product
from hessmap.maps.curvature_map.layers import measured_factors
from hessmap_research.instruments.full_factors import full_factors
from hessmap_research.instruments.matricisation import input_correspondence, output_correspondence

NUMBERS = torch.randint(0, 6, (25, 4), generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(25) % 3


class Words(nn.Module):
    def __init__(self, embedding: nn.Module, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.words, self.last, self.activation = embedding, nn.Linear(5, 3), activation

    def forward(self, numbers: Tensor) -> Tensor:
        hidden = self.activation(self.words(numbers))
        return self.last(hidden if hidden.ndim == 2 else hidden.mean(1))


class Projection(nn.Module):
    """A weight that is stored as inputs x outputs, with its bias."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.shift, self.last = (
            nn.Parameter(torch.randn(4, 5)),
            nn.Parameter(torch.randn(5)),
            nn.Linear(5, 3),
        )

    def forward(self, numbers: Tensor) -> Tensor:
        return self.last(torch.tanh(torch.addmm(self.shift, numbers.to(self.shift.dtype), self.words)))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.between = nn.Embedding(6, 5), nn.Linear(5, 5)
        self.last = nn.Linear(5, 6, bias=False)
        self.last.weight = self.words.weight

    def forward(self, numbers: Tensor) -> Tensor:
        return self.last(torch.tanh(self.between(self.words(numbers).mean(1))))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(6, 5), nn.Linear(5, 3)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.last(torch.tanh(self.words(numbers[:, 0]) + self.words(numbers[:, 1])))


BUILDS: dict[str, Callable[[], nn.Module]] = {
    "embedding": lambda: Words(nn.Embedding(6, 5), torch.tanh),
    "piecewise linear": lambda: Words(nn.Embedding(6, 5), torch.relu),
    "padding": lambda: Words(nn.Embedding(6, 5, padding_idx=1), torch.tanh),
    "bag of means": lambda: Words(nn.EmbeddingBag(6, 5, mode="mean"), torch.tanh),
    "bag of sums": lambda: Words(nn.EmbeddingBag(6, 5, mode="sum"), torch.sigmoid),
    "bag of maxima": lambda: Words(nn.EmbeddingBag(6, 5, mode="max"), torch.relu),
    "projection": Projection,
}
REPEATED: dict[str, Callable[[], nn.Module]] = {"tied": Tied, "twice": Twice}


def problem_of(build: Callable[[], nn.Module], **options: object) -> hm.Problem:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = build().double()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.7)
    return hm.Problem(model, "cross_entropy", NUMBERS, LABELS, **options)


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
def test_maps_and_correspondences_keep_inputs_and_outputs_apart(name: str) -> None:
    problem = problem_of(BUILDS[name])
    factors = layer_factors(problem, "words")
    values = torch.linalg.eigvalsh(factors.output_factor).flip(0)
    found = measured_factors(problem, hm.loss_hessian(problem).to_dense())[0]["words"]
    assert found.kronecker_overlap is not None
    assert found.outlier_share == pytest.approx(float(values[:2].clamp(min=0).sum() / values.abs().sum()))
    vectors = np.linalg.eigh(layer_hessian(problem, "words").to_dense().numpy())[1]
    inputs = output_correspondence(vectors, torch.linalg.eigh(factors.input_factor)[1])
    outputs = input_correspondence(vectors, torch.linalg.eigh(factors.output_factor)[1])
    assert inputs.sum(1) == pytest.approx(np.full(len(factors.input_factor), len(factors.output_factor)))
    assert outputs.sum(1) == pytest.approx(np.full(len(factors.output_factor), len(factors.input_factor)))


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize("function", [layer_factors, layer_hessian, hm.kronecker_approximation, logit_gradients])
def test_an_embedding_that_acts_twice_is_refused_in_one_sentence(name: str, function: Callable[..., object]) -> None:
    problem = problem_of(REPEATED[name])
    with pytest.raises(UnsupportedNetwork, match="must act once.* is used more than once in one forward pass"):
        function(problem, "words")
    with pytest.raises(UnsupportedNetwork, match="parameter 'words.weight' belongs to none"):
        full_factors(problem)


@pytest.mark.parametrize("name", BUILDS)
def test_what_needs_a_linear_layer_refuses_others_in_one_sentence(name: str) -> None:
    problem = problem_of(BUILDS[name])
    kind = layer_hessian(problem, "words").layer.kind
    with pytest.raises(InvalidInput, match=f"need a linear layer or a convolution.* is of kind {kind}"):
        logit_gradients(problem, "words")
    with pytest.raises(UnsupportedNetwork, match="weights behind layer 'words' must follow each other"):
        fully_connected_tail(problem, "words")
    with pytest.raises(UnsupportedNetwork, match="full factors need linear layers that act once per sample"):
        full_factors(problem)


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
