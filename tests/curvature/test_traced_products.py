"""Products by traced graphs against double backward: every kind of curvature, model, batch and block, and refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from cases import CASES, Case
from hessmap.hessians import compiled as traced_products
from hessmap.hessians.compiled import NotTraceable, folded_graph, held_bytes
from hessmap.hessians.products import BlockProducts
from hessmap.problem.autograd import PRODUCTS, BatchGraph

KINDS = ("loss", "outer_product", "functional", "empirical_fisher")


class Masked(nn.Module):
    """Attention whose mask, and a branch whose choice, depend on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        hidden = hidden + self.attention(hidden, hidden, hidden, key_padding_mask=tokens == 0, need_weights=False)[0]
        if bool((tokens > 5).any()):
            hidden = nn.functional.gelu(hidden)
        return self.head(self.norm(hidden)[tokens[:, 0] >= 0].mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.recurrent(inputs)[0][:, -1])


def pooled_convolutions() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Softplus(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 4, 3, groups=2), nn.GELU(), nn.Flatten(), nn.Linear(4, 3)),
    )


def masked_tokens() -> Tensor:
    tokens = torch.randint(1, 11, (13, 6))
    tokens[::2, 4:] = 0
    return tokens


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "attention, data-dependent mask": (Masked, masked_tokens),
    "LSTM": (Recurrent, lambda: torch.randn(13, 3, 4)),
    "convolutions": (pooled_convolutions, lambda: torch.randn(13, 2, 6, 6)),
}


@pytest.fixture(autouse=True)
def _seeded_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(traced_products, "has_compiler", lambda: False)


def model_problem(name: str, **options: object) -> hm.Problem:
    build, data = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model, inputs = build().double().eval(), data()
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    return hm.Problem(model, "cross_entropy", inputs, torch.arange(len(inputs)) % 3, **options)  # type: ignore[arg-type]


def require_equal_products(traced: hm.Problem, kind: str, count: int = 3) -> None:
    generator = torch.Generator().manual_seed(2)
    vectors = torch.randn(traced.num_parameters, count, generator=generator, dtype=torch.float64)
    found = BlockProducts(traced, kind)(vectors)
    assert any("traced in" in note for note in traced.notes), traced.notes
    expected = BlockProducts(traced, kind, ("autograd",))(vectors)
    assert float((found - expected).abs().max()) <= 1e-12 * float(expected.abs().max())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_traced_products_are_those_of_double_backward(case: Case) -> None:
    require_equal_products(case.problem(compile=True, l2=0.1), "loss")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_models_that_a_forward_trace_would_refuse(name: str, kind: str) -> None:
    require_equal_products(model_problem(name, compile=True), kind)


def test_batches_of_one_size_weights_and_some_parameters() -> None:
    """The last batch takes samples again, with weight zero."""
    given = model_problem(
        "LSTM", compile=True, weights=torch.rand(13, dtype=torch.float64), parameters=["recurrent.weight_hh_l0", "head"]
    )
    given._cache["bytes_per_sample"] = traced_products.batch_bytes(given) // 5
    given.memory_budget = 2**40
    batches = traced_products._batches(given, traced_products._num_batches(given))
    assert [len(targets) for _, targets, _ in batches] == [5, 5, 5]
    assert float(sum(weights.sum() for _, _, weights in batches)) == pytest.approx(
        float(given.weights.sum()), abs=1e-15
    )
    require_equal_products(given, "loss")


def test_in_single_precision() -> None:
    given = model_problem("attention, data-dependent mask", compile=True, dtype=torch.float32)
    vector = torch.randn(given.num_parameters, 1)
    found, expected = BlockProducts(given, "loss")(vector), BlockProducts(given, "loss", ("autograd",))(vector)
    assert any("traced in" in note for note in given.notes)
    assert float((found - expected).abs().max()) <= 1e-5 * float(expected.abs().max())


def test_nothing_that_depends_on_the_data_alone_is_left_to_a_product() -> None:
    given = model_problem("attention, data-dependent mask")
    batch = next(iter(given.batches(None)))
    row = torch.randn(1, given.num_parameters, dtype=torch.float64)
    graph = folded_graph(PRODUCTS["loss"](BatchGraph(given, batch, vectorised=False)), row)
    depends = set()
    for node in graph.module.graph.nodes:
        if node.name == "row" or depends.intersection(node.all_input_nodes):
            depends.add(node)
        elif node.op == "call_function":
            assert "full" in str(node.target) or "zeros" in str(node.target) or "empty" in str(node.target), node
    own = list(given.named.values())
    assert 0 < held_bytes([graph], own) < held_bytes([graph])


def test_an_operation_that_hides_from_the_tracer_falls_back_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise NotTraceable("it looks at its values")

    monkeypatch.setattr(traced_products, "folded_graph", refuse)
    given = model_problem("LSTM", compile=True)
    vector = torch.randn(given.num_parameters, 1, dtype=torch.float64)
    assert torch.equal(hm.loss_hessian(given) @ vector, BlockProducts(given, "loss", ("autograd",))(vector))
    assert "products of the loss curvature: not traced, it looks at its values" in given.notes


def test_values_that_are_read_in_python_cannot_be_traced() -> None:
    def product(rows: Tensor) -> Tensor:
        return rows * (2.0 if float(rows.sum()) > 0 else 3.0)

    with pytest.raises(NotTraceable, match="RuntimeError"):
        folded_graph(product, torch.ones(1, 4))


def test_a_constant_that_changes_after_it_was_read_is_refused() -> None:
    kept = torch.ones(1, 4)

    def product(rows: Tensor) -> Tensor:
        counter = kept * 1.0
        first = rows * counter
        counter.add_(1.0)
        return first + rows * counter

    with pytest.raises(NotTraceable, match="changes a constant in place"):
        folded_graph(product, torch.ones(1, 4))


def test_a_wrong_graph_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    true_graph = traced_products.folded_graph

    def doubled(product: Callable[[Tensor], Tensor], row: Tensor) -> object:
        return true_graph(lambda rows: 2 * product(rows), row)

    monkeypatch.setattr(traced_products, "folded_graph", doubled)
    given = model_problem("LSTM", compile=True)
    vector = torch.randn(given.num_parameters, 1, dtype=torch.float64)
    assert torch.equal(hm.loss_hessian(given) @ vector, BlockProducts(given, "loss", ("autograd",))(vector))
    assert any("disagrees with autograd" in note for note in given.notes)


def test_streamed_data_and_small_budgets_keep_to_the_plain_way() -> None:
    build, data = MODELS["LSTM"]
    model, inputs = build().double(), data().double()
    streamed = hm.Problem(model, "cross_entropy", [(inputs, torch.arange(13) % 3)], compile=True)
    tight = hm.Problem(model, "cross_entropy", inputs, torch.arange(13) % 3, compile=True, memory_budget=2**20)
    tight._cache["bytes_per_sample"] = 2**17
    for given, reason in ((streamed, "the data are streamed"), (tight, "more than half of the memory budget")):
        hm.loss_hessian(given) @ torch.ones(given.num_parameters, dtype=torch.float64)
        assert any(f"not traced, {reason}" in note or reason in note for note in given.notes), given.notes


def test_the_matrix_of_a_small_mlp_is_formed_where_its_matrix_costs_less_than_the_products() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    inputs, labels = torch.randn(20, 4, dtype=torch.float64), torch.arange(20) % 3
    few, many = (hm.loss_hessian(hm.Problem(model, "cross_entropy", inputs, labels)) for _ in range(2))
    assert few.matrix_for_products(16) is None
    assert torch.equal(many.matrix_for_products(17), many.to_dense())  # a third of 51 parameters
    assert not any("formed for" in note for note in few.notes)
    density = hm.density_estimate(many, num_steps=8, num_probes=4)
    assert "the loss Hessian was formed for 17 products, which use the matrix" in density.provenance.notes
    assert hm.trace_estimate(many).value == pytest.approx(float(many.to_dense().trace()), rel=1e-12)
    other = hm.loss_hessian(model_problem("LSTM"))
    assert other.matrix_for_products(10_000) is None


@pytest.mark.parametrize("given", ["always", "auto", 2, None])
def test_compile_takes_two_values(given: object) -> None:
    with pytest.raises(hm.errors.InvalidInput, match="compile must be True or False"):
        model_problem("LSTM", compile=given)


@pytest.mark.slow
def test_compiled_products_are_those_of_double_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    if not traced_products.has_compiler():
        pytest.skip("there is no C++ compiler")
    given = CASES[5].problem(compile=True)
    require_equal_products(given, "loss")
    assert any("compiled in" in note for note in given.notes), given.notes
