"""Diagonals from the structure of layers, against the diagonals of dense Hessians."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm
from cases import CASES, Case, Tokens, averaged_and_normalised, chain, max_pooled, strided_convolutions
from hessmap.hessians import diagonal as diagonal_check
from hessmap.hessians import diagonal as road
from hessmap.hessians import exact_diagonal
from hessmap.hessians import mlp as chain_products
from hessmap.hessians.diagonal import mlp_diagonal
from hessmap.hessians.mlp import DenseLayer, activation_derivatives
from hessmap.hessians.operators import empirical_fisher, fisher
from hessmap.layers import kronecker_approximation, layer_hessian
from hessmap.linalg.operator import DenseOperator
from hessmap.problem.autograd import BatchGraph
from hessmap.problem.layer_calls import UseOnBatch
from hessmap.problem.problem import Problem

PARTS = {"loss": hm.loss_hessian, "outer_product": hm.outer_product_hessian, "functional": hm.functional_hessian}
UNTOLD = {
    "residual, norms, repeated",
    "tied weight and bias",
    "transposed weight",
    "convolution called twice",
}
NAMES = [case.name for case in CASES]


def data(count: int, width: int, num_classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(0, num_classes, (count,), generator=generator)


def seeded(model: type[nn.Module], seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model().double()


def assert_right(problem: Problem, part: str = "loss", tolerance: float = 1e-12) -> None:
    found = exact_diagonal(problem, part)
    assert found is not None
    expected = PARTS[part](problem).to_dense().diagonal().double()
    assert float((found - expected).abs().max()) <= tolerance * float(expected.abs().max())


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("case", [case for case in CASES if case.name not in UNTOLD], ids=lambda case: case.name)
def test_the_diagonal_is_that_of_the_dense_hessian(case: Case, part: str) -> None:
    assert_right(case.problem(), part)


@pytest.mark.parametrize("name", sorted(UNTOLD))
def test_what_the_layers_do_not_tell_is_not_told(name: str) -> None:
    case = CASES[NAMES.index(name)]
    assert all(exact_diagonal(case.problem(), part) is None for part in PARTS)
    assert hm.loss_hessian(case.problem()).exact_diagonal() is None


@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("name", ["tanh, one-hot targets", "relu cross-entropy", "convolutions, padded", "decoder"])
def test_ragged_batches_weights_and_penalties(name: str, is_small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two or three samples at a time, few rows at a time, brought back together or one by one."""
    case = next(case for case in CASES if case.name.startswith(name.replace("decoder", "convolutions after")))
    monkeypatch.setattr(road, "mlp_diagonal", lambda *_: None)
    monkeypatch.setattr(road, "_LIMIT", 2**11)
    monkeypatch.setattr(road, "_CACHED", 100)
    if not is_small:
        monkeypatch.setattr(road, "_SMALL", 0)
    weights = torch.rand(case.num_samples, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for part in PARTS:
        assert_right(case.problem(weights=weights, l2=0.3), part)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_small_chains_go_by_hand(part: str, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = torch.rand(40, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    problem = Problem(chain(4, 6, 5, 3), loss, *data(40, 4), weights=weights, l2=0.3)
    monkeypatch.setattr(road, "layer_graph", None)  # a small chain needs none
    assert_right(problem, part)


def test_what_a_chain_tells_wrongly_is_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def halved(link: DenseLayer, before: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        value, slope, second = activation_derivatives(link, before)
        return value, slope, None if second is None else second / 2

    problem = Problem(chain(4, 6, 5, 3), "cross_entropy", *data(40, 4))
    assert mlp_diagonal(problem, "loss") is not None
    monkeypatch.setattr(chain_products, "activation_derivatives", halved)
    assert mlp_diagonal(problem, "loss") is None


def test_many_samples_go_in_many_batches() -> None:
    model, pooled = chain(20, 20, 10, 3, activation=nn.ReLU), seeded(max_pooled)
    for network, loss, given in ((model, "cross_entropy", data(300, 20)), (pooled, "squared", data(300, 16, 3))):
        plenty, little = (Problem(network, loss, *given, memory_budget=budget, l2=0.1) for budget in (2**30, 2**20))
        expected, found = hm.loss_hessian(plenty).to_dense().diagonal(), exact_diagonal(little)
        assert float((found - expected).abs().max()) <= 1e-12 * float(expected.abs().max())


def test_a_loss_that_is_not_convex_has_signs() -> None:
    inputs, targets = data(30, 4)[0], data(30, 3, seed=1)[0]
    for model in (chain(4, 5, 3), strided_convolutions()):
        inputs = data(30, 26 if len(model) > 3 else 4)[0]
        width = model(inputs.float()).shape[1]
        problem = Problem(model, lambda out, target: torch.sin(2 * (out - target)).sum(1), inputs, targets[:, :width])
        assert_right(problem)
        assert float(exact_diagonal(problem, "outer_product").min()) < 0


@pytest.mark.parametrize("chosen", [["embed", "value", "last"], ["value.weight"], ["*.bias"], ["embed.bias", "last"]])
def test_tokens_and_parts_of_the_parameters(chosen: list[str]) -> None:
    """The layer-norm among them is no parameter then; biases alone and weights alone are diagonals of their own."""
    chosen = [name for name in chosen if name != "*.bias"] or ["embed.bias", "last.bias"]
    problem = Problem(seeded(Tokens), "cross_entropy", *data(30, 6), parameters=chosen)
    for part in PARTS:
        assert_right(problem, part)


def test_frozen_batch_norm_lies_between_layers() -> None:
    model = seeded(averaged_and_normalised)
    inputs = data(20, 36)[0]
    assert_right(Problem(model, "squared", inputs, inputs[:, :3], parameters=["1", "5", "9"]))


class Bending(nn.Module):
    """Straight for positive inputs, bent for negative ones; an in-place activation behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        for layer in (self.first, self.second):
            layer.weight.data.abs_()
            layer.bias.data.abs_()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(nn.functional.relu_(self.second(nn.functional.elu(self.first(inputs)))))


def test_curvature_that_the_first_samples_do_not_show_is_found() -> None:
    inputs, labels = data(60, 4)
    inputs = inputs.abs() * torch.where(torch.arange(60) < 40, 1.0, -1.0)[:, None]
    problem = Problem(seeded(Bending), "cross_entropy", inputs, labels)
    first = Problem(seeded(Bending), "cross_entropy", inputs[:40], labels[:40])
    assert float(hm.functional_hessian(first).to_dense().diagonal().abs().max()) < 1e-16
    assert_right(problem)
    assert_right(problem, "functional")


class HiddenUse(nn.Module):
    """One row of a weight is used once more where no layer shows it."""

    def __init__(self, row: int) -> None:
        super().__init__()
        self.first, self.last, self.row = nn.Linear(4, 5), nn.Linear(5, 3), row

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.last(torch.tanh(self.first(inputs)))
        return torch.cat([hidden[:, :2], hidden[:, 2:] + (inputs @ self.first.weight[self.row])[:, None]], 1)


class TokensFirst(nn.Module):
    """Tokens before samples, as recurrent modules have them: the rows of a sample are not side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = inputs.reshape(len(inputs), 32, 2).transpose(0, 1)
        return self.last(torch.relu(self.first(tokens)).mean(0))


class NeverUsed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 3))
        self.spare = nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self[0](inputs)


@pytest.mark.parametrize(
    ("model", "width"),
    [(lambda row=row: HiddenUse(row), 4) for row in range(5)],
)
def test_a_module_that_hides_its_structure_is_caught(model: type[nn.Module], width: int) -> None:
    problem = Problem(seeded(model), "cross_entropy", *data(32, width))
    assert exact_diagonal(problem) is None


@pytest.mark.parametrize(("model", "width"), [(TokensFirst, 64), (NeverUsed, 4)])
def test_tokens_before_samples_and_unused_parameters(model: type[nn.Module], width: int) -> None:
    for part in PARTS:
        assert_right(Problem(seeded(model), "cross_entropy", *data(32, width)), part)


@pytest.mark.parametrize("name", ["features_of", "by_output"])
def test_a_structure_that_is_wrong_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[NAMES.index("convolutions, max-pool")]
    assert exact_diagonal(case.problem()) is not None
    honest = getattr(UseOnBatch, name)
    monkeypatch.setattr(UseOnBatch, name, lambda self, given: honest(self, given).flip(2))
    assert exact_diagonal(case.problem()) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", ["tanh, one-hot targets", "relu cross-entropy", "convolutions, strided"])
def test_a_large_problem_has_the_diagonal_of_the_small_one(name: str, dtype: torch.dtype) -> None:
    case = CASES[NAMES.index(name)]
    inputs, targets = case.data()
    expected = exact_diagonal(case.problem(l2=0.2))
    assert expected is not None
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=4, shuffle=True)
    for given in ((inputs, targets), (loader,)):
        problem = hm.Problem(case.seeded_model(), case.loss, *given, dtype=dtype, l2=0.2)
        found = exact_diagonal(problem)
        assert found is not None
        assert found.dtype == torch.float64
        tolerance = 1e-12 if dtype == torch.float64 else 1e-6
        assert float((found - expected).abs().max()) <= tolerance * float(expected.abs().max())


def test_what_costs_more_than_asked_is_not_told() -> None:
    relu, tanh = (Problem(chain(4, 30, 30, 3, activation=kind), "squared", *data(20, 4)) for kind in (nn.ReLU, nn.Tanh))
    assert exact_diagonal(relu, max_products=2) is not None
    assert exact_diagonal(relu, max_products=1) is None
    assert exact_diagonal(tanh, max_products=2) is None
    assert exact_diagonal(tanh, "outer_product", max_products=2) is not None
    assert exact_diagonal(tanh) is not None


def test_operators_that_know_their_diagonal() -> None:
    problem = CASES[NAMES.index("convolutions, max-pool")].problem(l2=0.1)
    hessian = hm.loss_hessian(problem)
    dense = hm.loss_hessian(problem)
    dense.to_dense()
    layer = layer_hessian(problem, "1", with_bias=True)
    operators = [
        hessian,
        dense,
        hessian.block("1.weight"),
        fisher(problem),
        empirical_fisher(problem),
        layer,
        kronecker_approximation(problem, "1"),
        DenseOperator(dense.to_dense()),
    ]
    for operator in operators:
        found, expected = operator.exact_diagonal(), operator.to_dense().diagonal()
        assert torch.allclose(found, expected, rtol=1e-12, atol=1e-14), operator


@pytest.mark.parametrize("name", [name for name in NAMES if name not in UNTOLD][:4])
def test_entries_by_their_own_parameter_are_those_of_whole_products(name: str) -> None:
    problem = CASES[NAMES.index(name)].problem()
    batch = next(iter(problem.batches(4)))
    entries = torch.arange(0, problem.num_parameters, max(1, problem.num_parameters // 9))
    own = diagonal_check._autograd_entries(BatchGraph(problem, batch, vectorised=False), "loss", entries)
    whole = diagonal_check._autograd_entries(BatchGraph(problem, batch, vectorised=True), "loss", entries)
    assert torch.allclose(own, whole, atol=1e-13)


@pytest.mark.parametrize("positions", [1, 2, 4, 5])
@pytest.mark.parametrize("loss", ["cross_entropy", "squared"])
def test_squares_over_few_positions_are_multiplied_out(positions: int, loss: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Conv1d(3, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(4 * positions, 3)
        model = nn.Sequential(nn.Unflatten(1, (2, positions + 3)), *layers).double()
    assert_right(Problem(model, loss, *data(40, 2 * (positions + 3))))
