"""Ranks of input-output Jacobians: against automatic differentiation sample by sample, and exact arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

import hessmap as hm
from example_shares import share_of_examples
from hessmap.errors import InvalidInput, NotReproducible, UnsupportedNetwork
from hessmap.functions import JacobianGram, NetworkFunction, jacobian_chunks
from hessmap.theory import functions


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + torch.tanh(self.inner(inputs))


def small_image_network() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 3, 3, stride=1, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.Conv2d(3, 4, 3, stride=2, dilation=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


def tiled_network(tile: tuple[int, int], **options: Any) -> nn.Module:
    convolution = nn.Conv2d(2, 4, 3, **options)
    layers = (convolution, nn.ReLU(), nn.MaxPool2d(tile), nn.Flatten(), nn.Linear(16, 3))
    return nn.Sequential(nn.Unflatten(1, (2, 10, 10)), *layers)


CASES = {
    "layers": (lambda: hm.FullyConnected((5, 7, 6, 3), activation="relu", bias=True).build(seed=0), (9, 5)),
    "layers, gelu": (lambda: hm.FullyConnected((3, 7, 6), activation="gelu", bias=True).build(seed=0), (9, 3)),
    "layers, image": (small_image_network, (5, 64)),
    "layers, tiled image": (
        lambda: nn.Sequential(nn.Unflatten(1, (2, 4, 6)), nn.Conv2d(2, 3, 1), nn.MaxPool2d((2, 3)), nn.Flatten()),
        (4, 48),
    ),
    "layers, tiles behind a stepping kernel": (
        lambda: tiled_network((2, 5), stride=(2, 1), padding=(1, 2), dilation=2),
        (3, 200),
    ),
    "layers, tiles behind groups": (lambda: tiled_network((4, 5), padding=(0, 1), groups=2), (3, 200)),
    "layers, tiles of tiles": (
        lambda: nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Tanh(), nn.MaxPool2d(2), nn.MaxPool2d(2), nn.Flatten()),
        (3, 64),
    ),
    "layers, tokens": (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)), (5, 2, 3)),
    "vjp": (lambda: nn.Sequential(Residual(), nn.Linear(4, 2)), (6, 4)),
    "jvp": (lambda: nn.Sequential(Residual(), nn.Linear(4, 9)), (6, 4)),
    "vjp, in place": (lambda: nn.Sequential(nn.ReLU(inplace=True), Residual()), (6, 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_jacobians_of_all_samples_are_those_of_each_sample(name):
    torch.manual_seed(0)
    made, shape = CASES[name]
    model, inputs = made().double(), drawn(*shape)
    methods = {method for _, method in jacobian_chunks(NetworkFunction(model, inputs))}
    assert methods == {name.split(",")[0]}
    plain = [module for module in model.modules() if hasattr(module, "inplace")]
    for module in plain:
        module.inplace = False
    wanted = torch.stack([torch.func.jacrev(lambda x: model(x[None])[0])(sample).flatten(1) for sample in inputs])
    assert torch.allclose(hm.maps.functions.input_jacobians(model, inputs), wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["layers", "layers, gelu", "layers, image", "layers, tiles of tiles"])
def test_jacobians_do_not_depend_on_how_the_samples_are_split(name, monkeypatch):
    torch.manual_seed(0)
    made, shape = CASES[name]
    model, inputs = made().double(), drawn(*shape)
    together = hm.maps.functions.input_jacobians(model, inputs)
    monkeypatch.setattr("hessmap.functions.jacobians._CHUNK", 1)  # one sample at a time
    assert torch.allclose(hm.maps.functions.input_jacobians(model, inputs), together, rtol=0, atol=1e-13)


def test_a_hook_that_changes_a_layer_sends_the_jacobians_to_autograd():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)).double()
    model.register_forward_hook(lambda module, given, found: 2 * found)
    inputs = drawn(4, 3)
    wanted = 2 * model[1].weight @ model[0].weight
    assert torch.allclose(hm.maps.functions.input_jacobians(model, inputs)[1], wanted, atol=1e-14)
    assert hm.function_rank(model, inputs).method == "vjp"


@share_of_examples(0.25)
@given(st.integers(0, 1000), st.integers(1, 4), st.sampled_from(["identity", "relu", "leaky_relu"]))
@example(seed=0, width=4, activation="relu")
def test_numerical_and_certified_ranks_agree_and_stay_within_the_narrowest_width(seed, width, activation):
    model = hm.FullyConnected((5, 6, width, 7, 4), activation=activation, bias=True).build(seed=seed)
    found = hm.function_rank(model, drawn(6, 5, seed=seed), certify=True)
    certificate = found.certificate
    assert (found.ranks == certificate.ranks).all()
    assert certificate.failure_bound < 1e-9
    assert found.value == certificate.value <= width
    assert found.bottleneck.lower == found.value
    assert found.bottleneck.lower_kind == "certificate"
    assert found.value <= found.bottleneck.upper <= width


def test_a_certificate_sees_what_floats_cannot():
    model = nn.Sequential(nn.Linear(2, 2, bias=False)).double()
    with torch.no_grad():
        model[0].weight[:] = torch.tensor([[1.0, 0.0], [0.0, 2.0**-60]])
    found = hm.function_rank(model, drawn(3, 2), certify=True)
    assert found.value == 1
    assert found.certificate.value == 2


def test_max_pools_are_certified_too():
    torch.manual_seed(0)
    layers = [layer for layer in small_image_network() if not isinstance(layer, nn.Tanh)]
    found = hm.function_rank(nn.Sequential(*layers).double(), drawn(3, 64), certify=True)
    assert (found.ranks == found.certificate.ranks).all()
    assert found.value == 3


@share_of_examples(0.5)
@given(st.integers(0, 1000), st.lists(st.integers(1, 5), min_size=2, max_size=9), st.floats(0.05, 3.0))
def test_the_quasi_norm_of_the_jacobian_never_exceeds_the_norm_of_the_weights(seed, widths, scale):
    model = hm.FullyConnected(tuple(widths), activation="leaky_relu", bias=True).build(seed=seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    schatten = hm.function_rank(model, drawn(3, widths[0], seed=seed)).schatten
    assert schatten.num_layers == len(widths) - 1
    assert schatten.slack >= -1e-9 * schatten.bound


def test_the_quasi_norm_is_that_of_the_closed_form_for_balanced_factors():
    factors = functions.balanced_factors([[3.0, 1.0, 0.0], [1.0, 2.0, -1.0]], 4)
    model = nn.Sequential(*(nn.Linear(f.shape[1], f.shape[0], bias=False) for f in factors)).double()
    with torch.no_grad():
        for layer, factor in zip(model, factors, strict=True):
            layer.weight[:] = torch.from_numpy(factor)
    assert hm.function_rank(model, drawn(3, 3)).schatten.slack == pytest.approx(0, abs=1e-12)


def test_the_bound_is_not_claimed_where_slopes_exceed_one_or_layers_are_no_chain():
    torch.manual_seed(0)
    assert hm.function_rank(hm.FullyConnected((3, 4, 2), activation="gelu").build(seed=0), drawn(3, 3)).schatten is None
    found = hm.function_rank(nn.Sequential(Residual(), nn.Linear(4, 2)), drawn(5, 4))
    assert found.schatten is None
    assert (found.bottleneck.upper, found.bottleneck.upper_kind) == (2, "theorem")


def test_a_jacobian_beyond_the_budget_is_met_by_products():
    torch.manual_seed(0)
    model = nn.Sequential(Residual(), nn.Linear(4, 30)).double()
    inputs = drawn(2, 4)
    whole = hm.function_rank(model, inputs)
    part = hm.function_rank(model, inputs, memory_budget=100, count=3)
    assert part.method == "products, 3 largest"
    assert not part.is_complete
    assert part.singular_values == pytest.approx(whole.singular_values[:, :3], rel=1e-7)
    gram = JacobianGram(NetworkFunction(model, inputs), 1).to_dense()
    jacobian = hm.maps.functions.input_jacobians(model, inputs)[1]
    assert torch.allclose(gram, jacobian.T @ jacobian, atol=1e-12)


def test_ranks_come_with_gaps_and_a_distribution():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False)).double()
    with torch.no_grad():
        model[0].weight[:], model[2].weight[:] = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 1e-3]])
    inputs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]], dtype=torch.float64)
    found = hm.function_rank(model, inputs)
    assert found.ranks.tolist() == [2, 1, 0]
    assert found.distribution == {0: 1, 1: 1, 2: 1}
    coarse = hm.function_rank(model, inputs, relative_tolerance=0.1)
    assert coarse.ranks.tolist() == [1, 1, 0]
    assert coarse.gaps == pytest.approx([1000.0, np.inf, np.inf])
    assert type(found).from_json(found.to_json()) == found


class Broken(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        results = {
            "nan": inputs * torch.nan,
            "matrix": inputs[:, :, None] * inputs[:, None],
            "batch": inputs - inputs.mean(0),
            "tuple": (inputs,),
        }
        return results[self.kind]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: hm.function_rank(Broken("nan"), drawn(3, 2)), InvalidInput, "activations must be finite; the outputs"),
        (lambda: hm.function_rank(Broken("matrix"), drawn(3, 2)), InvalidInput, "vector of outputs per sample; inputs"),
        (lambda: hm.function_rank(Broken("tuple"), drawn(3, 2)), InvalidInput, "per sample; it returned a tuple"),
        (
            lambda: hm.function_rank(Broken("batch"), drawn(3, 2)),
            NotReproducible,
            "the model must treat samples independently",
        ),
        (lambda: hm.function_rank(nn.Linear(2, 2), drawn(1, 2)), InvalidInput, r"at least two samples; got .*\(1, 2\)"),
        (
            lambda: hm.function_rank(nn.Linear(2, 2), drawn(3, 5)),
            InvalidInput,
            r"must fit the model; inputs of shape \(3, 5\)",
        ),
        (lambda: hm.function_rank(print, drawn(3, 2)), InvalidInput, "must be a torch.nn.Module; got builtin"),
        (lambda: hm.function_rank(nn.Linear(2, 2), drawn(3, 2) / 0), InvalidInput, "inputs must be finite; there is"),
        (
            lambda: hm.maps.functions.certified_function_rank(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), drawn(3, 2)),
            UnsupportedNetwork,
            "exact arithmetic needs .*; layer 1 is Tanh",
        ),
    ],
)
def test_what_has_no_rank_is_refused_in_one_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()
