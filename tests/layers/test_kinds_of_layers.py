"""Grouped convolutions, embeddings, normalisations and the projections of attention are layers, on any problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm
from hessmap.errors import UnsupportedNetwork
from hessmap.hessians.products import hessian_product
from hessmap.layers import find_layer, kronecker_approximation, layer_factors, layer_hessian, layer_names

LABELS = torch.randint(0, 3, (6,), generator=torch.Generator().manual_seed(1))


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    """A float64 model whose normalisations have scales and shifts that are not trivial."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = build().double().eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.5)
    return model


class Images(nn.Module):
    """Grouped and depthwise convolutions with group-norm and batch-norm between them."""

    def __init__(self) -> None:
        super().__init__()
        self.grouped = nn.Conv2d(2, 4, 3, groups=2, padding=1)
        self.group_norm, self.batch_norm = nn.GroupNorm(2, 4), nn.BatchNorm2d(4)
        self.depthwise = nn.Conv2d(4, 4, 3, groups=4, dilation=2)
        self.last = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.group_norm(self.grouped(inputs)))
        return self.last(torch.tanh(self.batch_norm(self.depthwise(hidden))).mean((2, 3)))


class Words(nn.Module):
    """An embedding with a padding index, layer-norm, RMS-norm, and a weight that is stored as inputs x outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4, padding_idx=2)
        self.layer_norm, self.rms_norm = nn.LayerNorm(4), nn.RMSNorm(4)
        self.projection, self.shift = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(5))
        self.last = nn.Linear(5, 3)

    def forward(self, numbers: Tensor) -> Tensor:
        hidden = torch.tanh(self.rms_norm(torch.tanh(self.layer_norm(self.embedding(numbers)))))
        rows = torch.addmm(self.shift, hidden.reshape(-1, 4), self.projection)
        return self.last(torch.tanh(rows).reshape(*numbers.shape, 5).mean(1))


class Attention(nn.Module):
    """Queries, keys and values from one tensor, from two, or from three: one, two or three slices of a weight."""

    def __init__(self, sources: int, batch_first: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=batch_first)
        self.last, self.sources, self.batch_first = nn.Linear(4, 3), sources, batch_first

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens if self.batch_first else tokens.transpose(0, 1)
        keys = tokens if self.sources == 1 else torch.sin(tokens)
        values = keys if self.sources < 3 else torch.cos(tokens)
        found = self.attention(tokens, keys, values, need_weights=self.batch_first)[0]
        return self.last(torch.tanh(found).mean(1 if self.batch_first else 0))


@dataclass(frozen=True)
class Kind:
    name: str
    build: Callable[[], nn.Module]
    inputs: Tensor
    layers: tuple[str, ...]

    def problem(self, **options: object) -> hm.Problem:
        return hm.Problem(seeded(self.build), "cross_entropy", self.inputs, LABELS, **options)


NUMBERS = torch.randint(0, 7, (6, 5), generator=torch.Generator().manual_seed(2))
KINDS = [
    Kind("images", Images, drawn(6, 2, 6, 6), ("grouped", "group_norm", "depthwise", "batch_norm", "last")),
    Kind("words", Words, NUMBERS, ("embedding", "layer_norm", "rms_norm", "projection", "last")),
    *(
        Kind(
            f"attention from {sources}, batch first {first}",
            lambda sources=sources, first=first: Attention(sources, first),
            drawn(6, 3, 4),
            ("attention.in_proj", "attention.out_proj", "last"),
        )
        for sources in (1, 2, 3)
        for first in (True, False)
    ),
]


CASES = [(kind, name) for kind in KINDS for name in kind.layers]


def autograd_block(problem: hm.Problem, weight: str) -> Tensor:
    """The block of a parameter by double backward, in the parameter's own order."""
    place = problem.layout[weight]
    units = torch.eye(problem.num_parameters, dtype=problem.dtype)[:, place]
    return hessian_product(problem, "loss", units)[place]


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) <= tolerance * float(expected.abs().max())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_layers_are_named_in_order_of_execution(kind: Kind) -> None:
    assert layer_names(kind.problem()) == kind.layers


@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda value: getattr(value, "name", value))
def test_the_layer_is_the_block_that_autograd_gives(kind: Kind, name: str) -> None:
    problem = kind.problem(l2=0.1)
    hessian = layer_hessian(problem, name)
    expected = autograd_block(problem, hessian.layer.weight)
    assert_close(hessian.to_dense(), expected)
    assert_close(hessian @ torch.eye(hessian.size, dtype=torch.float64), expected)
    assert_close(hessian.exact_diagonal(), expected.diagonal())
    assert hessian.trace == pytest.approx(float(expected.trace()), rel=1e-12)


@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda value: getattr(value, "name", value))
def test_with_its_bias_the_layer_is_the_extended_block(kind: Kind, name: str) -> None:
    problem = kind.problem()
    layer = find_layer(problem, name)
    if layer.bias is None:
        with pytest.raises(UnsupportedNetwork, match="with_bias needs a layer with a trainable bias"):
            layer_hessian(problem, name, with_bias=True)
        return
    hessian = layer_hessian(problem, name, with_bias=True)
    numbers = torch.arange(problem.num_parameters)
    weight, bias = numbers[problem.layout[layer.weight]], numbers[problem.layout[layer.bias]]
    if layer.is_transposed:
        places = torch.cat([weight, bias])
    else:
        places = torch.cat([weight.view(layer.num_outputs, -1), bias[:, None]], 1).flatten()
    whole = hessian_product(problem, "loss", torch.eye(problem.num_parameters, dtype=torch.float64))
    assert_close(hessian.to_dense(), whole[places][:, places])


@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda value: getattr(value, "name", value))
def test_factors_and_their_product_have_the_shape_of_the_weight(kind: Kind, name: str) -> None:
    problem = kind.problem()
    factors, hessian = layer_factors(problem, name), layer_hessian(problem, name)
    product = kronecker_approximation(problem, name)
    assert product.weight_shape == hessian.weight_shape
    assert float(torch.linalg.eigvalsh(factors.input_factor).min()) >= -1e-12
    assert float(factors.input_factor.trace()) > 0
    # One sample and one position, with one group, leave nothing to average: the product is the layer's Hessian.
    layer = hessian.layer
    if layer.num_positions == 1 and layer.is_plain:
        single = hm.Problem(seeded(kind.build), "cross_entropy", kind.inputs[:1], LABELS[:1])
        expected = layer_hessian(single, name).to_dense()
        assert_close(kronecker_approximation(single, name).to_dense(), expected)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("part", ["loss", "outer_product", "functional"])
def test_exact_diagonals_need_no_probe(kind: Kind, part: str) -> None:
    operator = getattr(hm, f"{part}_hessian")(kind.problem())
    found = operator.exact_diagonal()
    assert found is not None
    expected = hessian_product(operator.problem, part, torch.eye(operator.size, dtype=torch.float64)).diagonal()
    assert_close(found, expected)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_streamed_data_and_float32_give_the_same_layers(kind: Kind) -> None:
    held = kind.problem()
    loader = DataLoader(TensorDataset(kind.inputs, LABELS), batch_size=4)
    streamed = hm.Problem(seeded(kind.build), "cross_entropy", loader)
    single = kind.problem(dtype=torch.float32)
    for name in kind.layers:
        expected, factors = layer_hessian(held, name).to_dense(), layer_factors(held, name)
        assert_close(layer_hessian(streamed, name).to_dense(), expected)
        assert_close(layer_factors(streamed, name).output_factor, factors.output_factor)
        assert_close(layer_hessian(single, name).to_dense().double(), expected, 1e-4)
        assert_close(layer_factors(single, name).input_factor, factors.input_factor, 1e-5)
    trace = float(hm.loss_hessian(held).to_dense().trace())
    assert hm.trace_estimate(hm.loss_hessian(streamed)).value == pytest.approx(trace, rel=1e-10)
    assert hm.trace_estimate(hm.loss_hessian(single)).value == pytest.approx(trace, rel=1e-4)


class Dictionaries(nn.Module):
    """Called with keywords, it returns an object with its logits among other things, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Words()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        logits = self.inner(torch.where(attention_mask.bool(), input_ids, 2))
        return {"hidden_states": logits.exp(), "logits": logits}


def test_models_of_dictionaries_have_layers() -> None:
    model = seeded(Dictionaries)
    mask = (torch.arange(30).reshape(6, 5) % 4 > 0).long()
    batches = [
        {"input_ids": NUMBERS[part], "attention_mask": mask[part], "labels": LABELS[part]}
        for part in (slice(0, 4), slice(4, 6))
    ]
    problem = hm.Problem(model, "cross_entropy", batches)
    plain = hm.Problem(model.inner, "cross_entropy", torch.where(mask.bool(), NUMBERS, 2), LABELS)
    for name in layer_names(plain):
        expected = layer_hessian(plain, name).to_dense()
        assert_close(layer_hessian(problem, f"inner.{name}").to_dense(), expected)
    assert_close(hm.loss_hessian(problem).exact_diagonal(), hm.loss_hessian(plain).to_dense().diagonal())


def test_some_parameters_alone_have_their_layers() -> None:
    kind = KINDS[0]
    problem = kind.problem(parameters=["grouped.weight", "batch_norm"])
    assert layer_names(problem) == ("grouped", "batch_norm")
    assert_close(layer_hessian(problem, "grouped").to_dense(), layer_hessian(kind.problem(), "grouped").to_dense())
    assert_close(hm.loss_hessian(problem).exact_diagonal(), hm.loss_hessian(problem).to_dense().diagonal())


def test_top_eigenpairs_of_a_grouped_layer() -> None:
    problem = KINDS[0].problem()
    hessian = layer_hessian(problem, "grouped")
    found = hm.layer_eigenpairs(hessian, 3)
    expected = torch.linalg.eigvalsh(hessian.to_dense()).flip(0)[:3]
    assert found.eigenvalues == pytest.approx(expected.numpy(), rel=1e-6)


def test_dense_hessians_of_all_kinds_are_lifted() -> None:
    for kind in KINDS:
        dense = hm.loss_hessian(kind.problem()).dense
        problem = kind.problem()
        expected = hessian_product(problem, "loss", torch.eye(problem.num_parameters, dtype=torch.float64))
        assert dense.method == "lifted"
        assert not any("autograd" in note for note in dense.notes)
        assert_close(dense.matrix, expected)
