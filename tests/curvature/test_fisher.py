"""The Fisher information is the outer-product Hessian, in every respect; the empirical one is one more kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.hessians import operators as hessians


def normals(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.last = nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.last(torch.tanh(self.norm(self.embedding(tokens).cumsum(1))))


def perceptron(loss: Any, targets: Tensor, **options: Any) -> hm.Problem:
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4))
    return hm.Problem(model.double(), loss, normals(9, 3), targets, **options)


def tokens() -> hm.Problem:
    given = torch.arange(24).reshape(6, 4) % 5
    return hm.Problem(Tokens().double(), hm.next_token(), given, given)


def convolutional() -> hm.Problem:
    layers = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)
    return hm.Problem(nn.Sequential(*layers).eval().double(), "cross_entropy", normals(8, 2, 4, 4), torch.arange(8) % 3)


PROBLEMS: dict[str, Callable[[], hm.Problem]] = {
    "labels": lambda: perceptron("cross_entropy", torch.arange(9) % 4),
    "squared": lambda: perceptron("squared", normals(9, 4)),
    "weights and a penalty": lambda: perceptron("squared", normals(9, 4), weights=torch.arange(1.0, 10.0), l2=0.1),
    "class weights": lambda: perceptron(
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0, 4.0])), torch.arange(9) % 4
    ),
    "next token": tokens,
    "convolutional": convolutional,
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_fisher_is_the_outer_product_hessian(name: str) -> None:
    problem = PROBLEMS[name]()
    fisher, outer = hm.fisher(problem), hm.outer_product_hessian(problem)
    assert type(fisher) is type(outer)
    assert fisher.dense.method == outer.dense.method == "lifted"
    assert torch.equal(fisher.to_dense(), outer.to_dense())
    assert fisher.scale == outer.scale == hm.loss_hessian(problem).scale
    vectors = normals(problem.num_parameters, 3)
    assert torch.equal(fisher @ vectors, outer @ vectors)
    ranks = [hm.numerical_rank(matrix) for matrix in (fisher, outer)]
    assert ranks[0].threshold == ranks[1].threshold
    assert ranks[0].value == ranks[1].value
    block = problem.layout.names[-1]
    assert torch.equal(fisher.block(block).to_dense(), outer.block(block).to_dense())
    assert fisher.block(block).scale == outer.scale


def gradient_moment(problem: hm.Problem) -> Tensor:
    """sum_n weight_n g_n g_n^T from a backward pass for every sample."""
    total = torch.zeros(problem.num_parameters, problem.num_parameters, dtype=torch.float64)
    for inputs, targets, weights in problem.batches(1):
        named = {name: value.detach().requires_grad_() for name, value in problem.named.items()}
        with torch.enable_grad():
            value = problem.loss.value(problem.forward(named, inputs), targets).sum()
        parts = torch.autograd.grad(value, list(named.values()), materialize_grads=True)
        gradient = torch.cat([part.flatten() for part in parts])
        total += weights[0] * torch.outer(gradient, gradient)
    return total


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_empirical_fisher_is_the_second_moment_of_the_gradients(name: str) -> None:
    problem = PROBLEMS[name]()
    expected = gradient_moment(problem)
    atol = 1e-12 * float(expected.abs().max())
    empirical = hm.hessians.empirical_fisher(problem)
    assert isinstance(empirical, hessians.Hessian)
    assert empirical.dense.method == "lifted"
    assert torch.allclose(empirical.to_dense(), expected, rtol=1e-9, atol=atol)
    vectors = normals(problem.num_parameters, 3)
    assert torch.allclose(empirical @ vectors, expected @ vectors, rtol=1e-9, atol=10 * atol)
    diagonal = empirical.exact_diagonal()
    assert diagonal is not None
    assert torch.allclose(diagonal, expected.diagonal(), rtol=1e-9, atol=atol)
    assert empirical.scale is None
    assert repr(empirical).startswith("empirical Fisher matrix of size")
    assert "Fisher" not in repr(hm.fisher(problem))


def test_the_empirical_fisher_of_a_models_own_loss() -> None:
    """No function of the outputs is known, and none is needed."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(3, 2)

        def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
            logits = self.last(inputs)
            return {"loss": (logits.sin() - labels).pow(4).mean(), "logits": logits}

    problem = hm.Problem(Own().double(), None, {"inputs": normals(5, 3), "labels": normals(5, 2)})
    assert torch.allclose(
        hm.hessians.empirical_fisher(problem).to_dense(), gradient_moment(problem), rtol=1e-9, atol=1e-12
    )
    with pytest.raises(hm.errors.InvalidInput, match="known function of the outputs"):
        hm.fisher(problem)
