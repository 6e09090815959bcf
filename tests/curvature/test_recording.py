"""Every use of every parameter is recorded: as a layer where it is one, else as "other", and none is missed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import hessmap as hm
from hessmap.problem.layer_calls import LayerUse, Recording, SampleAxis
from hessmap.problem.trace import recording_of
from hidden_products import HiddenProduct

INPUTS = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(5) % 3


class Wrapped(nn.Module):
    """A linear layer and a head, between which a test puts its own way to use the weight."""

    def __init__(self, body: Callable[[Wrapped, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.square, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.body = body

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(self, inputs))


def recording(body: Callable[[Wrapped, Tensor], Tensor]) -> Recording:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Wrapped(body)
    return recording_of(hm.Problem(model, "cross_entropy", INPUTS, LABELS))


def kinds(found: Recording, name: str) -> list[str]:
    return [use.kind for use in found.uses_of(name)]


KNOWN = {
    "module": lambda model, x: model.layer(x).mean(1),
    "functional": lambda model, x: F.linear(x, model.layer.weight, model.layer.bias).mean(1),
    "keyword arguments": lambda model, x: F.linear(input=x, weight=model.layer.weight).mean(1),
    "transposed product": lambda model, x: (x @ model.layer.weight.T).mean(1),
    "product": lambda model, x: torch.matmul(x, model.layer.weight).mean(1),
    "addmm": lambda model, x: torch.addmm(model.layer.bias, x.mean(1), model.layer.weight.t()),
    "slices": lambda model, x: torch.cat([F.linear(x, part) for part in model.layer.weight.chunk(2)], -1).mean(1),
    "rows by index": lambda model, x: torch.cat([x @ model.layer.weight[at : at + 2].T for at in (0, 2)], 2).mean(1),
    "folded tokens": lambda model, x: model.layer(x.reshape(-1, 4)).reshape(len(x), -1, 4).mean(1),
    "tokens first": lambda model, x: model.layer(x.transpose(0, 1)).mean(0),
    "folded tokens first": lambda model, x: model.layer(x.transpose(0, 1).reshape(-1, 4)).reshape(3, -1, 4).mean(0),
    "view and cast": lambda model, x: F.linear(x, model.layer.weight.view(16).reshape(4, 4).to(x.dtype)).mean(1),
    "called twice": lambda model, x: model.layer(torch.tanh(model.layer(x))).mean(1),
}
UNKNOWN = {
    "einsum": lambda model, x: torch.einsum("nti,oi->no", x, model.layer.weight),
    "scaled weight": lambda model, x: F.linear(x, 2 * model.layer.weight).mean(1),
    "masked weight": lambda model, x: F.linear(x, model.layer.weight * torch.eye(4, dtype=x.dtype)).mean(1),
    "vector product": lambda model, x: model.layer(x).mean(1) + (x @ model.layer.weight[0]).mean(1, keepdim=True),
    "reused transposed": lambda model, x: HiddenProduct.apply(model.layer(x).mean(1), model.layer.weight),
    "left product": lambda model, x: (model.layer.weight @ x.mT).mean(2),
    "sum of the weight": lambda model, x: x.mean(1) * model.layer.weight.sum(),
    "shared by all samples": lambda model, x: x.mean(1) + model.layer(torch.ones(4, dtype=x.dtype)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_uses_as_layers_are_known(name: str) -> None:
    found = recording(KNOWN[name])
    assert set(kinds(found, "layer.weight")) == {"linear"}
    assert "layer.weight" in found.structured_names
    assert not any(found.uses_of(name) for name in ("square.weight", "square.bias"))


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_uses_are_not_missed(name: str) -> None:
    found = recording(UNKNOWN[name])
    assert found.uses_of("layer.weight")
    assert "layer.weight" not in found.structured_names
    assert "head.weight" in found.structured_names


@pytest.mark.parametrize("name", [*KNOWN, *(name for name in UNKNOWN if name != "reused transposed")])
def test_the_dense_hessian_is_that_of_double_backward(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Wrapped((KNOWN | UNKNOWN)[name])
    problem = hm.Problem(model, "cross_entropy", INPUTS, LABELS, parameters=["layer", "head"])
    dense = hm.loss_hessian(problem).dense
    expected = hm.loss_hessian(problem) @ torch.eye(problem.num_parameters, dtype=torch.float64)
    assert dense.method == "lifted"
    assert float((dense.matrix - expected).abs().max()) <= 1e-12 * float(expected.abs().max())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("module", SampleAxis(0)),
        ("folded tokens", SampleAxis(0)),
        ("tokens first", SampleAxis(1)),
        ("folded tokens first", SampleAxis(0, varies_slowest=False)),
    ],
)
def test_the_samples_are_found_wherever_they_lie(name: str, expected: SampleAxis) -> None:
    (use,) = recording(KNOWN[name]).uses_of("layer.weight")
    assert use.samples == expected
    assert use.num_positions == 3


def test_a_use_without_gradient_is_seen_and_not_differentiated() -> None:
    found = recording(lambda model, x: model.layer(x).mean(1) + F.linear(x, model.layer.weight.detach()).mean(1))
    assert [use.is_differentiable for use in found.uses_of("layer.weight")] == [True, False]
    assert "layer.weight" in found.structured_names


def test_parametrised_weights_are_uses_of_their_parameters() -> None:
    model = nn.Sequential(nn.Flatten(), parametrizations.weight_norm(nn.Linear(12, 3)))
    found = recording_of(hm.Problem(model, "cross_entropy", INPUTS, LABELS))
    names = [f"1.parametrizations.weight.original{place}" for place in (0, 1)]
    assert all(found.uses_of(name) and name not in found.structured_names for name in names)
    assert "1.bias" in found.structured_names


class Routed(nn.Module):
    """Every sample takes one of two layers, as it likes: which calls there are depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 3)])

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.mean(1)
        outputs = rows.new_zeros(len(rows), 3)
        for number, expert in enumerate(self.experts):
            chosen = (rows[:, 0] > 0) == bool(number)
            if chosen.any():
                outputs = outputs.index_put((chosen.nonzero().flatten(),), expert(rows[chosen]))
        return outputs


def test_calls_that_depend_on_the_data_are_no_structure() -> None:
    model = Routed()
    problem = hm.Problem(model, "cross_entropy", INPUTS, LABELS)
    assert recording_of(problem).structured_names == frozenset()
    dense = hm.loss_hessian(problem).dense
    expected = hm.loss_hessian(hm.Problem(model, "cross_entropy", INPUTS, LABELS))
    assert dense.method == "autograd"
    assert float((dense.matrix - expected @ torch.eye(30, dtype=torch.float64)).abs().max()) < 1e-13


def test_a_recurrent_network_is_one_use_of_all_its_weights() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.head(self.cell(inputs)[0][:, -1])

    found = recording_of(hm.Problem(Recurrent(), "cross_entropy", INPUTS, LABELS))
    assert kinds(found, "cell.weight_hh_l0") == ["other"]
    assert found.structured_names == {"head.weight", "head.bias"}


def test_a_use_of_which_nothing_is_known_claims_no_sizes() -> None:
    use = LayerUse("other", "mystery", frozenset({"weight"}))
    sizes = use.num_inputs, use.num_outputs, use.num_positions, use.input_size, use.weight_shape
    assert sizes == (0, 0, 0, 0, ())
    assert not use.is_structured
