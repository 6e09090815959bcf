"""Gradients of single samples as an operator, against one backward pass of plain autograd per sample."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm
from hessmap.errors import InvalidInput

DOUBLE = torch.float64
MODULE = import_module("hessmap.hessians.jacobian")  # the package has a function of that name


class Clipped(nn.Module):
    """Branches on a value, which vmap cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(inputs)
        return outputs if bool(outputs.abs().max() < 1e6) else outputs.clamp(-1, 1)


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 5)

    def forward(self, ids: Tensor) -> Tensor:
        outputs: Tensor = self.head(torch.tanh(self.norm(self.embed(ids))))
        return outputs


Case = tuple[nn.Module, Tensor, Tensor, Callable[[Tensor, Tensor], Tensor]]


def mlp() -> Case:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    return model, torch.randn(11, 6, dtype=DOUBLE), torch.randint(3, (11,)), F.cross_entropy


def cnn() -> Case:
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    half = lambda outputs, targets: (outputs - targets).square().sum() / 2  # noqa: E731
    return model, torch.randn(9, 2, 4, 4, dtype=DOUBLE), torch.randn(9, 2, dtype=DOUBLE), half


def tokens() -> Case:
    targets = torch.randint(5, (7, 3))
    targets[1, :2] = -100  # ignored
    loss = lambda outputs, labels: F.cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="sum")  # noqa: E731
    return Tokens(), torch.randint(5, (7, 3)), targets, loss


def clipped() -> Case:
    half = lambda outputs, targets: (outputs - targets).square().sum() / 2  # noqa: E731
    return Clipped(), torch.randn(6, 3, dtype=DOUBLE), torch.randn(6, 2, dtype=DOUBLE), half


CASES = {"mlp": mlp, "cnn": cnn, "tokens": tokens, "clipped": clipped}


def case_of(name: str) -> tuple[hm.Problem, Tensor]:
    """The problem, and its gradients by a loop of backward passes."""
    torch.manual_seed(3)
    model, inputs, targets, loss = CASES[name]()
    model = model.double().eval()
    rows = []
    for sample, target in zip(inputs, targets, strict=True):
        value = loss(model(sample[None]), target[None])
        parts = torch.autograd.grad(value, list(model.parameters()))
        rows.append(torch.cat([part.flatten() for part in parts]))
    named = "squared" if targets.is_floating_point() else "cross_entropy"
    return hm.Problem(model, named, inputs, targets), torch.stack(rows)


def close(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).abs().max() <= 1e-12 * expected.abs().max())


@pytest.mark.parametrize("name", list(CASES))
def test_rows_are_the_gradients_of_single_samples(name: str) -> None:
    problem, expected = case_of(name)
    gradients = hm.sample_gradients(problem)
    assert gradients.shape == tuple(expected.shape)
    assert close(gradients.to_dense(), expected)
    assert close(gradients.T.to_dense(), expected.T)
    assert close(gradients.gram(), expected @ expected.T)


@pytest.mark.parametrize("few", [0, 100], ids=["by rows", "by graphs"])
@pytest.mark.parametrize("name", list(CASES))
def test_products_are_those_of_the_matrix(name: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_FEW", few)
    problem, expected = case_of(name)
    gradients = hm.sample_gradients(problem)
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(problem.num_parameters, 3, generator=generator, dtype=DOUBLE)
    combinations = torch.randn(problem.num_samples, 3, generator=generator, dtype=DOUBLE)
    assert close(gradients @ vectors, expected @ vectors)
    assert close(gradients @ vectors[:, 0], expected @ vectors[:, 0])
    assert close(gradients.T @ combinations, expected.T @ combinations)
    assert close(combinations[:, 0] @ gradients, combinations[:, 0] @ expected)
    assert close((gradients.T @ gradients) @ vectors, expected.T @ (expected @ vectors))


@pytest.mark.parametrize("name", list(CASES))
def test_weighted_sums_are_the_gradient_and_the_empirical_fisher_matrix(name: str) -> None:
    problem, _ = case_of(name)
    gradients, weights = hm.sample_gradients(problem), problem.weights
    assert close(gradients.T @ weights, problem.gradient())
    dense = gradients.to_dense()
    assert close(dense.T @ (weights[:, None] * dense), hm.hessians.empirical_fisher(problem).to_dense())


@pytest.mark.parametrize("name", ["mlp", "tokens"])
def test_chunks_of_any_size_give_the_same_gram_matrix(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, expected = case_of(name)
    sizes: list[int] = []

    def few_rows(budget: float, each: float, most: int) -> int:
        sizes.append(min(most, 3))
        return sizes[-1]

    monkeypatch.setattr(MODULE, "rows_that_fit", few_rows)
    assert close(hm.sample_gradients(problem).gram(), expected @ expected.T)
    assert len(sizes) > problem.num_samples // 3  # a pass for each held chunk


def test_rows_held_at_once_fit_the_memory_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What chunks keep of the working memory: rows, and copies while they are made; of the Gram matrix two chunks."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 40), nn.Tanh(), nn.Linear(40, 3)).double()
    inputs, labels = torch.randn(60, 30, dtype=DOUBLE), torch.randint(3, (60,))
    budget = 2**20
    problem = hm.Problem(model, "cross_entropy", inputs, labels)
    monkeypatch.setattr(type(problem), "working_bytes", budget)
    each = DOUBLE.itemsize * problem.num_parameters
    assert each * 60 < budget < each * 60 * MODULE._COPIES  # all rows fit, but not while they are made
    sizes, made = list[int](), MODULE.jacobian_rows

    def counted(*given: object) -> Tensor:
        rows: Tensor = made(*given)
        sizes.append(rows.nbytes)
        return rows

    monkeypatch.setattr(MODULE, "jacobian_rows", counted)
    gradients = hm.sample_gradients(problem)
    held = list(gradients.rows())
    assert len(held) > 1
    assert max(sizes) * MODULE._COPIES <= budget
    expected = torch.cat(held)
    for work, share in (
        (lambda: gradients.gram(), 2),
        (lambda: gradients @ torch.eye(problem.num_parameters, 20, dtype=DOUBLE), 1),
        (lambda: gradients.T @ torch.eye(60, 20, dtype=DOUBLE), 1),
    ):
        sizes.clear()
        work()
        assert len(sizes) > 1
        assert share * max(sizes) * MODULE._COPIES <= budget
    assert close(gradients.gram(), expected @ expected.T)


def test_a_loader_that_shuffles_keeps_the_order_of_the_inputs() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3).double()
    inputs, labels = torch.randn(10, 4, dtype=DOUBLE), torch.randint(3, (10,))
    problem = hm.Problem(model, "cross_entropy", DataLoader(TensorDataset(inputs, labels), batch_size=4, shuffle=True))
    gradients = hm.sample_gradients(problem)
    held = hm.sample_gradients(hm.Problem(model, "cross_entropy", problem.inputs, problem.targets))
    assert close(gradients.to_dense(), held.to_dense())
    assert close(gradients.gram(), held.gram())
    assert close(gradients @ problem.gradient(), held @ problem.gradient())


def test_users_are_not_affected_and_modes_of_torch_do_not_matter() -> None:
    problem, expected = case_of("mlp")
    with torch.inference_mode():
        found = hm.sample_gradients(problem).to_dense()
        product = hm.sample_gradients(problem) @ torch.ones(problem.num_parameters, dtype=DOUBLE)
    assert close(found, expected)
    assert close(product, expected.sum(1))
    assert not found.requires_grad


def test_an_objective_has_no_gradients_of_single_samples() -> None:
    problem = hm.Problem(nn.Linear(2, 1), objective=lambda model, x: model(x).std(), data=[torch.randn(5, 2)])
    with pytest.raises(InvalidInput, match="gradients of single samples"):
        hm.sample_gradients(problem)
