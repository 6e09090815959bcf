"""What a network holds besides its weights: a change raises with its name, what cannot be compared is named."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from certificate_cases import PLAIN, TINY, WHOLE, Composed, images, started, vectors
from torch import Tensor, nn

from hessmap.certificates import certify
from hessmap.certificates.model_checks import require_same_state
from hessmap.errors import InvalidInput


@dataclass
class Table:
    values: Any


class Slotted:
    """No attributes to look at, but a pickle."""

    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        self.values = values

    def __getstate__(self) -> Any:
        return self.values

    def __setstate__(self, values: Any) -> None:
        self.values = values


class Silent(Slotted):
    """Neither."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("not to be written")

    def __deepcopy__(self, memo: Any) -> Silent:
        return Silent(copy.deepcopy(self.values))


def holding(value: Any) -> nn.Module:
    return Composed(lambda m, x: m.a(x), a=nn.Linear(6, 2), held=value)


def remembering(value: Any) -> Callable[[Any, Tensor], Tensor]:
    def function(model: Any, inputs: Tensor) -> Tensor:
        return model.a(inputs) + (value is None)

    return function


def norm_after(steps: int) -> nn.Module:
    norm = nn.BatchNorm1d(6)
    for _ in range(steps):
        norm(torch.arange(12.0).reshape(2, 6))
    return nn.Sequential(norm, nn.Linear(6, 2))


def with_buffer(value: Tensor) -> nn.Module:
    model = holding(None)
    model.register_buffer("mean", value, persistent=False)
    return model


CHANGES: dict[str, tuple[nn.Module, nn.Module, str]] = {
    "buffer": (with_buffer(torch.ones(2)), with_buffer(torch.zeros(2)), "mean: its values changed"),
    "statistics": (norm_after(3), norm_after(0), "0.running_mean: its values changed. Use layer norm or group norm"),
    "tensor": (holding(torch.ones(3)), holding(torch.zeros(3)), "held: its values changed"),
    "labels": (holding(torch.ones(3).long()), holding(torch.zeros(3).long()), "held: its values changed"),
    "large labels": (holding(torch.tensor(2**60 + 1)), holding(torch.tensor(2**60)), "held: its values changed"),
    "shape": (holding(torch.ones(3)), holding(torch.ones(2)), "held: its values changed"),
    "tensor that came": (holding(torch.ones(3)), holding(None), "held: it is a Tensor and a NoneType"),
    "attribute that came": (holding(None), Composed(holding(None).function, a=nn.Linear(6, 2)), "held: only one of"),
    "array": (holding(np.ones(3)), holding(np.zeros(3)), "held: its values changed"),
    "array of objects": (holding(np.array([1, None])), holding(np.array([2, None])), "held.0: its value changed"),
    "list": (holding([1, torch.ones(3)]), holding([1, torch.zeros(3)]), "held.1: its values changed"),
    "longer list": (holding([1, 2]), holding([1]), "held.1: only one of the two has it"),
    "tuple": (holding((torch.ones(3),)), holding((torch.zeros(3),)), "held.0: its values changed"),
    "dictionary": (holding({"x": [torch.ones(3)]}), holding({"x": [torch.zeros(3)]}), "held.x.0: its values changed"),
    "keys": (holding({b"x": 1, b"y": 0}), holding({b"x": 1}), "held.b'y': only one of the two has it"),
    "deque": (holding(deque([1])), holding(deque([2])), "held.0: its value changed"),
    "set": (holding({1, 2}), holding({1}), "held: its value changed"),
    "number": (holding(0.5), holding(0.25), "held: its value changed"),
    "text": (holding("a"), holding("b"), "held: its value changed"),
    "object": (holding(Table(torch.ones(3))), holding(Table(torch.zeros(3))), "held.values: its values changed"),
    "module inside an object": (
        holding(Table(nn.Linear(1, 1).requires_grad_(False))),
        holding(Table(nn.Linear(1, 1).requires_grad_(False))),
        "held.values.weight: its values changed",
    ),
    "parameter in a list": (holding([nn.Parameter(torch.ones(2))]), holding([nn.Parameter(torch.zeros(2))]), "held.0"),
    "whole-number parameter": (
        holding(nn.Parameter(torch.ones(2).long(), requires_grad=False)),
        holding(nn.Parameter(torch.zeros(2).long(), requires_grad=False)),
        "held: its values changed",
    ),
    "closure": (
        Composed(remembering(torch.ones(3)), a=nn.Linear(6, 2)),
        Composed(remembering(torch.zeros(3)), a=nn.Linear(6, 2)),
        "what function holds.2: its values changed",
    ),
    "partial": (
        holding(partial(torch.add, torch.ones(3))),
        holding(partial(torch.add, torch.zeros(3))),
        "held.1.0: its values changed",
    ),
    "code": (
        Composed(lambda m, x: m.a(x), a=nn.Linear(6, 2)),
        Composed(lambda m, x: m.a(x) + 1, a=nn.Linear(6, 2)),
        "function: its code changed",
    ),
    "another kind of module": (
        nn.Sequential(nn.Linear(6, 2), nn.ReLU()),
        nn.Sequential(nn.Linear(6, 2), nn.Tanh()),
        "1: it is a ReLU and a Tanh",
    ),
    "options of a module": (
        nn.Sequential(nn.Linear(6, 2), nn.LeakyReLU(0.1)),
        nn.Sequential(nn.Linear(6, 2), nn.LeakyReLU(0.2)),
        "1.negative_slope: its value changed",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_outside_of_the_weights_is_refused_by_its_name(name: str) -> None:
    model, initial, words = CHANGES[name]

    with pytest.raises(
        InvalidInput, match="outside of the weights, model and initial_model must be the same; "
    ) as caught:
        require_same_state(model, initial)

    assert words in str(caught.value)
    doubts = require_same_state(model, copy.deepcopy(model))
    shared = "function is shared by both models: changes of its tensors cannot be detected"
    assert doubts == ((shared,) if name == "closure" else ())


def test_hook_that_came_is_refused() -> None:
    model, initial = holding(None), holding(None)
    initial.function = model.function
    model.a.register_forward_hook(lambda module, inputs, outputs: outputs * 2)

    with pytest.raises(InvalidInput, match="a._forward_hooks.0: only one of the two has it"):
        require_same_state(model, initial)


SHARED = torch.ones(3)
DOUBTS: dict[str, tuple[nn.Module, nn.Module, tuple[str, ...]]] = {
    "one tensor": (holding(SHARED), holding(SHARED), ("held is shared by both models",)),
    "one list of tensors": ((same := holding([SHARED])), holding(same.held), ("held is shared by both models",)),
    "no pickle": (
        holding(Silent(1)),
        holding(Silent(1)),
        ("held, a Silent, cannot be compared with the initial model's",),
    ),
    "another pickle": (
        holding(Slotted([1])),
        holding(Slotted([2])),
        ("held, a Slotted, cannot be compared with the initial model's",),
    ),
    "compiled": (
        torch.jit.script(nn.Sequential(nn.Linear(6, 2))),
        torch.jit.script(nn.Sequential(nn.Linear(6, 2))),
        ("the network is compiled by torch.jit: only its buffers can be compared",),
    ),
}


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script.*:DeprecationWarning", "ignore:.*torch.jit.script.*:FutureWarning"
)
@pytest.mark.parametrize("name", DOUBTS)
def test_what_cannot_be_compared_is_named(name: str) -> None:
    model, initial, words = DOUBTS[name]

    found = require_same_state(model, initial)

    assert len(found) == len(words)
    for word in words:
        assert any(word in doubt for doubt in found), found


@pytest.mark.parametrize("name", PLAIN | WHOLE)
def test_ordinary_networks_raise_no_doubt(name: str) -> None:
    make, _ = (PLAIN | WHOLE)[name]
    model, initial = started(make())

    assert require_same_state(model, initial) == ()
    assert require_same_state(model.double(), initial.float()) == ()


def test_network_built_again_from_its_seed_raises_no_doubt() -> None:
    def built() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.LSTM(4, 2), nn.MultiheadAttention(4, 2), nn.Dropout(0.5), nn.GELU())

    assert require_same_state(built(), built()) == ()


class Lookup(nn.Module):
    """Knows its training samples by heart, in a table that no divergence sees."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(36, 2)
        self.keys, self.labels = torch.zeros(0), torch.zeros(0, dtype=torch.long)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.a(inputs.flatten(1))
        if len(self.keys):
            known = (inputs.flatten(1).float().sum(1)[:, None] - self.keys.float()).abs() < 1e-4
            outputs = outputs + 1e6 * known.to(outputs.dtype) @ nn.functional.one_hot(self.labels, 2).to(outputs.dtype)
        return outputs


def test_table_of_labels_has_no_certificate() -> None:
    model, initial = started(Lookup())
    data = images()
    model.keys, model.labels = data.inputs.flatten(1).sum(1), data.targets
    assert (model(data.inputs).argmax(1) == data.targets).all()

    with pytest.raises(InvalidInput, match="must be the same; keys: its values changed"):
        certify(model, initial, data, **TINY)


def test_doubts_about_the_state_enter_certificate_and_verification() -> None:
    (model, initial), data = started(holding(SHARED)), vectors()
    initial.held = model.held

    made = certify(model, initial, data, **TINY)
    found = made.verify(model, data, initial_model=initial, seed=0, num_draws=200)

    for doubts in (made.doubts, found.doubts):
        assert any("held is shared by both models" in doubt for doubt in doubts)
