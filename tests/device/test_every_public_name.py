"""Every public name of the library that takes a model, a problem or an operator is called on a device.

The table is walked from ``hm.__all__``: a new name that takes one of these, and is not called, fails here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from test_public_functions import CALLS, CLASSES, SAMPLES, Transformer, halved, mlp, numbers, ones, problem_of
from torch import nn

import hessmap as hm
from hessmap.errors import InvalidInput

# Names of parameters by which a model, a problem or an operator is given.
GIVEN = {
    *("problem", "model", "models", "module", "build_model", "initial_model", "matrix", "hessian", "operator"),
    *("curvature", "curvatures", "local", "function"),
}
Call = Callable[[torch.device | str], Any]


def data_on(place: torch.device | str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model, inputs = mlp()
    return model.to(place), inputs.to(place), torch.randint(CLASSES, (SAMPLES,)).to(place)


def certified(place: torch.device | str) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)).to(place)
    data = torch.randn(SAMPLES, 5).to(place), torch.randint(2, (SAMPLES,)).to(place)
    found = hm.certify(model, halved(model), data, iterations=20, num_draws=10)
    return [found.bound, found.kl]


def certified_from_data(place: torch.device | str) -> list[float]:
    def build() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)).to(place)

    def train(model: nn.Module, part: Any) -> nn.Module:
        return halved(model)

    torch.manual_seed(1)
    data = torch.randn(40, 5).to(place), torch.randint(2, (40,)).to(place)
    found = hm.certify_from_data(build, data, train=train, num_draws=10)
    return [found.bound, found.kl]


def shifted_tokens(place: torch.device | str) -> torch.Tensor:
    class Tokens(Transformer):
        def forward(self, numbers: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(self.block(self.tokens(numbers)), self.tokens.weight)

    torch.manual_seed(0)
    model, tokens = Tokens().to(place), torch.randint(7, (6, 5)).to(place)
    return hm.Problem(model, hm.next_token(), tokens, tokens, parameters="tokens", device=place).gradient()


def kept(call: Callable[[hm.Problem], Any]) -> Call:
    return lambda place: call(problem_of("mlp", place))


# Called with the place of the model; compared with the numbers of the host, to the tolerance beside it.
TABLE: dict[str, tuple[Call, float]] = {
    "Problem": (kept(lambda problem: [problem.risk(), problem.outputs()]), 1e-9),
    "as_operator": (
        lambda place: (
            hm.sharpness(
                hm.as_operator(lambda vector: torch.linspace(1, 2, 9, device=place).double() * vector, 9, device=place)
            ).value
        ),
        1e-9,
    ),
    "certify": (certified, 1e-9),
    "certify_from_data": (certified_from_data, 1e-9),
    "cost_plan": (
        kept(
            lambda problem: [
                getattr(hm.cost_plan(problem, name, memory_budget=2**24, time_product=False), field)
                for name in ("sharpness", "density_estimate")
                for field in ("num_products", "size")
            ]
        ),
        0.0,
    ),
    "describe": (lambda place: list(hm.describe(data_on(place)[0]).widths), 0.0),
    "ggn": (kept(lambda problem: hm.ggn(problem) @ ones(problem)), 1e-9),
    "kronecker_error": (
        kept(
            lambda problem: [
                block.frobenius_error for block in hm.kronecker_error(problem, hm.kronecker_curvature(problem)).blocks
            ]
        ),
        1e-9,
    ),
    "next_token": (shifted_tokens, 1e-9),
    "sharded_hessian": (
        lambda place: hm.sharpness(hm.sharded_hessian(*sharded_parts(place)), tolerance=1e-5).value,
        1e-4,  # finite differences of gradients
    ),
    **{name: (kept(CALLS[name]), 1e-9) for name in CALLS if name in hm.__all__},
}


def sharded_parts(place: torch.device | str) -> tuple[Any, ...]:
    model, inputs, labels = data_on(place)
    return model.double(), "cross_entropy", inputs.double(), labels


def train_on(place: torch.device) -> Any:
    model, inputs, labels = data_on(place)
    return hm.train(model, (inputs, labels), epochs=1)


# What cannot be done on a device, or not by one process, and the sentence that states it.
REFUSED: dict[str, tuple[Callable[[torch.device], Any], str]] = {
    "train": (train_on, "train needs a model and data on the CPU; got a tensor on"),
    "distributed": (
        lambda place: hm.distributed(hm.loss_hessian(problem_of("mlp", place))),
        "torch.distributed",
    ),
}


def takes_a_model(name: str) -> bool:
    found = getattr(hm, name)
    if isinstance(found, ModuleType) or not callable(found):
        return False
    return bool(GIVEN & set(inspect.signature(found).parameters))


NAMES = [name for name in hm.__all__ if takes_a_model(name)]


def test_every_public_name_that_takes_a_model_is_called_on_the_device() -> None:
    assert len(NAMES) > 40
    assert sorted(set(NAMES) - {*TABLE, *REFUSED}) == []


def test_names_of_the_table_are_public() -> None:
    assert {*TABLE, *REFUSED} <= set(hm.__all__)


@pytest.mark.parametrize("name", [name for name in TABLE if name not in CALLS])
def test_a_public_name_gives_the_numbers_of_the_host(name: str, device: torch.device) -> None:
    call, tolerance = TABLE[name]
    expected, found = numbers(call("cpu")), numbers(call(device))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_device_cannot_do_raises_one_sentence(name: str, device: torch.device) -> None:
    call, sentence = REFUSED[name]
    with pytest.raises(InvalidInput, match=sentence):
        call(device)
