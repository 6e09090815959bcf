"""Products of fully connected networks by hand against autograd's, and what they are not trusted with."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.hessians import dense as engine
from hessmap.hessians import mlp as chain_products
from hessmap.hessians.dense import dense_hessian
from hessmap.hessians.mlp import as_mlp
from hessmap.hessians.products import BlockProducts

PARTS = ("loss", "outer_product", "functional")


def linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=bias, dtype=torch.float64)


def plain() -> nn.Module:
    return nn.Sequential(linear(5, 7), nn.Tanh(), linear(7, 6), nn.ReLU(), linear(6, 3))


def without_some_biases() -> nn.Module:
    return nn.Sequential(
        linear(5, 7, bias=False), nn.GELU(), nn.Sequential(linear(7, 6), nn.Sigmoid()), linear(6, 3, False)
    )


def two_in_a_row() -> nn.Module:
    return nn.Sequential(nn.Flatten(), linear(5, 4), linear(4, 6), nn.Softplus(), linear(6, 3))


def one_layer() -> nn.Module:
    return linear(5, 3)


def problem(model: nn.Module, loss: str = "cross_entropy", count: int = 23, **options: object) -> hm.Problem:
    inputs, labels = torch.randn(count, 5, dtype=torch.float64), torch.arange(count) % 3
    return hm.Problem(model, loss, inputs, labels, **options)  # type: ignore[arg-type]


def agree(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).abs().max() <= 1e-12 * expected.abs().max())


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("loss", ["cross_entropy", "squared"])
@pytest.mark.parametrize("build", [plain, without_some_biases, two_in_a_row, one_layer])
def test_products_by_hand_are_those_of_autograd(build: Callable[[], nn.Module], loss: str, part: str) -> None:
    given = problem(build(), loss, l2=0.1)
    by_hand, by_autograd = BlockProducts(given, part), BlockProducts(given, part, ("autograd",))
    assert by_hand.engine.name == "mlp"
    for count in (1, 2, 19):
        vectors = torch.randn(given.num_parameters, count, dtype=torch.float64)
        expected = by_autograd(vectors)
        if expected.abs().max() == 0:  # the functional Hessian of one linear layer
            assert by_hand(vectors).abs().max() == 0
        else:
            assert agree(by_hand(vectors), expected)


def test_samples_in_pieces_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_products, "_FEWEST_SAMPLES", 4)
    monkeypatch.setattr(chain_products, "_ENTRIES", 1)
    given = problem(plain(), weights=torch.rand(23, dtype=torch.float64) + 0.1)
    vectors = torch.randn(given.num_parameters, 3, dtype=torch.float64)
    assert agree(BlockProducts(given, "loss")(vectors), BlockProducts(given, "loss", ("autograd",))(vectors))


@pytest.mark.parametrize("budget", [2**20, 2**24, 2**30])
@pytest.mark.parametrize("width", [3, 700, 40_000])
def test_samples_and_vectors_of_a_product_fit_the_budget(width: int, budget: int) -> None:
    model = nn.Sequential(linear(5, width), nn.Tanh(), linear(width, 3))
    given = problem(model, count=300, memory_budget=budget)
    links = as_mlp(given)
    assert links is not None
    samples = min(300, chain_products.mlp_samples(given, links))
    columns = chain_products.mlp_columns(given, links)
    assert 1 <= columns <= 16
    assert samples == 1 or samples * columns * width * 8 * 8 <= budget


def test_batches_of_a_loader_are_multiplied_by_hand_as_well() -> None:
    inputs, labels = torch.randn(23, 5, dtype=torch.float64), torch.arange(23) % 3
    model = plain()
    whole = hm.loss_hessian(hm.Problem(model, "cross_entropy", inputs, labels))
    loader = [(inputs[:10], labels[:10]), (inputs[10:], labels[10:])]
    streamed = hm.loss_hessian(hm.Problem(model, "cross_entropy", loader))
    vectors = torch.randn(whole.size, 2, dtype=torch.float64)
    assert agree(streamed.matmat(vectors), whole.matmat(vectors))


def test_single_precision_stays_single() -> None:
    given = problem(plain().float(), count=40, dtype=torch.float32)
    vectors = torch.randn(given.num_parameters, 2)
    found, expected = BlockProducts(given, "loss")(vectors), BlockProducts(given, "loss", ("autograd",))(vectors)
    assert found.dtype == torch.float32
    assert BlockProducts(given, "loss").engine.name == "mlp"
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


def tied() -> nn.Module:
    shared = linear(5, 5)
    return nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), linear(5, 3))


class Doubled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def hooked() -> nn.Module:
    model = plain()
    model[0].register_forward_hook(lambda module, given, made: 2 * made)  # type: ignore[index]
    return model


def own_forward() -> nn.Module:
    model = one_layer()
    weight = model.weight
    model.forward = lambda input: nn.functional.linear(input, 2 * weight)  # type: ignore[method-assign]
    return nn.Sequential(model)


@pytest.mark.parametrize(
    "build",
    [
        tied,
        hooked,
        own_forward,
        lambda: nn.Sequential(Doubled(5, 3, dtype=torch.float64)),
        lambda: nn.Sequential(linear(5, 3), nn.LayerNorm(3, dtype=torch.float64)),
        lambda: nn.Sequential(linear(5, 3), nn.Tanh()),
        lambda: nn.Sequential(linear(5, 4), nn.Softmax(1), linear(4, 3)),
    ],
)
def test_what_is_not_a_chain_of_known_layers_is_left_to_autograd(build: Callable[[], nn.Module]) -> None:
    model = build()
    # what `as_mlp` reads of a problem
    seen = SimpleNamespace(model=model, named=dict(model.named_parameters()), user_forward=None)
    assert as_mlp(seen) is None  # type: ignore[arg-type]


def test_some_of_the_parameters_are_left_to_autograd() -> None:
    given = problem(plain(), parameters=["0.weight", "2.weight"])
    assert BlockProducts(given, "loss").engine.name == "autograd"
    assert BlockProducts(problem(plain()), "loss").engine.name == "mlp"


def test_a_forward_function_of_the_user_is_left_to_autograd() -> None:
    given = problem(plain(), forward=lambda model, inputs: 2 * model(inputs))
    assert BlockProducts(given, "loss").engine.name == "autograd"
    vectors = torch.randn(given.num_parameters, 1, dtype=torch.float64)
    assert agree(BlockProducts(given, "loss")(vectors), BlockProducts(given, "loss", ("autograd",))(vectors))


def test_products_by_hand_that_disagree_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    right = chain_products.activation_derivatives
    monkeypatch.setattr(chain_products, "activation_derivatives", lambda *given: (*right(*given)[:2], None))
    given = problem(plain())
    assert BlockProducts(given, "loss").engine.name == "autograd"


def test_rows_of_tokens_are_left_to_autograd() -> None:
    inputs, targets = torch.randn(9, 4, 5, dtype=torch.float64), torch.randn(9, 4, 3, dtype=torch.float64)
    loss = lambda outputs, targets: (outputs - targets).square().sum((1, 2))  # noqa: E731
    given = hm.Problem(plain(), loss, inputs, targets)
    assert BlockProducts(given, "loss").engine.name == "autograd"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("budget", [None, 2**20])
def test_matrix_of_a_chain_by_hand_is_that_of_the_lifted_engine(monkeypatch, part, bias, budget):
    model = hm.FullyConnected((7, 6, 5, 4), bias=bias, activation="tanh").build(seed=0)
    inputs = torch.randn(400, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    problem = hm.Problem(model, "cross_entropy", inputs, torch.arange(400) % 4, memory_budget=budget)
    monkeypatch.setattr(engine, "second_derivatives", None)  # a chain needs none
    found = dense_hessian(problem, part)
    monkeypatch.undo()
    monkeypatch.setattr(engine, "perturbed_mlp", lambda _: None)
    expected = dense_hessian(problem, part)
    assert found.method == expected.method == "lifted"
    torch.testing.assert_close(found.matrix, expected.matrix, rtol=0, atol=1e-14)
