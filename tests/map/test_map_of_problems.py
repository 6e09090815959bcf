"""A map takes every problem; where Hessians cannot be formed, its estimates are held against the dense map."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.results import CurvatureEstimates, CurvatureMap, Record
from hessmap.views.tables.map_estimates import map_estimates_view


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(40, 6, generator=generator, dtype=torch.float64), torch.arange(40) % 3


def model(bias: bool = True) -> nn.Module:
    return hm.FullyConnected((6, 8, 5, 3), activation="tanh", bias=bias).build(seed=1)


class Named(nn.Module):
    """Takes its inputs by keyword and returns a dictionary, as models of language do."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.last = nn.Linear(4, 3)

    def forward(self, tokens: Tensor, scale: Tensor) -> dict[str, Tensor]:
        return {"logits": self.last(self.table(tokens).mean(1) * scale[:, None])}


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without memory for a dense Hessian."""
    monkeypatch.setattr("hessmap.maps.curvature_map.network.available_bytes", lambda: 1000)


def test_a_problem_has_the_map_of_its_model_and_data() -> None:
    problem = hm.Problem(model(), "squared", *data())
    assert hm.map(problem) == hm.map(model(), data(), "squared")
    assert hm.map(hm.Problem(model(), "cross_entropy", *data())) == hm.map(model(), data())


def test_estimates_are_those_of_the_dense_map(no_room: None, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = hm.Problem(model(), "cross_entropy", *data())
    found = hm.map(problem)
    assert isinstance(found, CurvatureEstimates)
    monkeypatch.undo()
    whole = hm.map(problem)
    assert isinstance(whole, CurvatureMap)
    values, vectors = np.linalg.eigh(hm.loss_hessian(problem).to_dense().numpy())
    assert found.eigenpairs.converged
    assert found.sharpness == pytest.approx(values[-1], rel=1e-3)
    assert found.eigenpairs.eigenvalues == pytest.approx(values[::-1][:10], abs=2e-3 * values[-1])
    assert abs(found.trace.value - values.sum()) <= 5 * found.trace.standard_error + 1e-9 * abs(values.sum())
    mean = float((found.density.nodes * found.density.weights).sum(1).mean()) * problem.num_parameters
    assert mean == pytest.approx(values.sum(), rel=0.5)
    assert [layer.name for layer in found.layers] == [layer.name for layer in whole.network.layers]
    for estimate, exact in zip(found.layers, whole.network.layers, strict=True):
        assert (estimate.shape, estimate.num_parameters) == (exact.shape, exact.num_parameters)
        assert abs(estimate.curvature_share - exact.curvature_share) <= 5 * estimate.share_error + 1e-9
    assert sum(layer.curvature_share for layer in found.layers) == pytest.approx(1)
    place = slice(0, found.layers[0].num_parameters)
    assert found.layers[0].direction_share == pytest.approx(float(np.square(vectors[place, -1]).sum()), abs=2e-2)
    assert (found.risk, found.gradient_norm) == (whole.network.risk, whole.network.gradient_norm)
    assert "1000 B are free" in found.reason
    assert Record.from_json(found.to_json()) == found


def test_estimates_are_shown_and_say_that_there_are_no_ranks(no_room: None) -> None:
    told: list[str] = []
    found = hm.map(model(), data(), title="mine", progress=told.append)
    assert found.title == "mine"
    assert any("largest eigenvalues from products" in text for text in told)
    console = Console(width=100, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(map_estimates_view(found))
    console.file.close()
    text = " ".join(console.export_text().split())
    assert "without ranks: it needs" in text
    assert "sharpest direction" in text
    assert found.verdicts[0] in text


def test_a_problem_in_float32_is_estimated_and_says_why() -> None:
    problem = hm.Problem(model(), "cross_entropy", *data(), dtype=torch.float32)
    found = hm.map(problem)
    assert isinstance(found, CurvatureEstimates)
    assert found.reason == "the problem is in float32, and dense Hessians are in float64"
    exact = hm.map(model(), data()).network["loss"].spectrum.eigenvalues
    assert found.sharpness == pytest.approx(exact[0], rel=1e-2)


def loader() -> Any:
    return DataLoader(TensorDataset(*data()), batch_size=7)


def tokens() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    scale = torch.rand(20, generator=generator, dtype=torch.float64)
    return {"tokens": torch.randint(7, (20, 5), generator=generator), "scale": scale, "labels": torch.arange(20) % 3}


PROBLEMS: dict[str, Any] = {
    "a stream": lambda: hm.Problem(model(), "cross_entropy", loader()),
    "a dictionary": lambda: hm.Problem(Named().double(), "cross_entropy", tokens()),
    "some parameters": lambda: hm.Problem(model(), "cross_entropy", *data(), parameters=["2"]),
    "a penalty": lambda: hm.Problem(model(False), "squared", *data(), l2=0.1),
    "a forward": lambda: hm.Problem(model(), "squared", *data(), forward=lambda net, inputs: 2 * net(inputs)),
    "weights": lambda: hm.Problem(model(), "squared", *data(), weights=torch.arange(40.0)),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_has_a_dense_map_and_estimates(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    problem = PROBLEMS[name]()
    found = hm.map(problem)
    assert isinstance(found, CurvatureMap)
    values = np.linalg.eigvalsh(hm.loss_hessian(problem).to_dense().numpy())
    assert found.network["loss"].spectrum.eigenvalues == pytest.approx(values[::-1], abs=1e-9 * abs(values).max())
    assert sum(layer.num_parameters for layer in found.network.layers) == problem.num_parameters
    assert Record.from_json(found.to_json()) == found
    monkeypatch.setattr("hessmap.maps.curvature_map.network.available_bytes", lambda: 1000)
    estimated = hm.map(problem)
    assert isinstance(estimated, CurvatureEstimates)
    assert estimated.sharpness == pytest.approx(values[-1], rel=2e-3)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a dictionary", "inputs that are one tensor"),
        ("some parameters", "0.weight is frozen or left out"),
        ("a penalty", "the risk without a penalty, and l2 is 0.1"),
        ("a forward", "called with its inputs alone"),
    ],
)
def test_formulas_are_silent_about_problems_they_do_not_cover(name: str, reason: str) -> None:
    torch.manual_seed(0)
    found = hm.map(PROBLEMS[name]())
    assert found.network.prediction is None
    assert reason in found.network.prediction_gap
    assert found.linear_twin is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hm.map(hm.Problem(model(), "squared", *data()), data()), "its own data and loss; data was given"),
        (lambda: hm.map(hm.Problem(model(), "squared", *data()), loss="squared"), "its own data and loss; loss was"),
        (lambda: hm.map(model()), "a Problem, or a model and data; data is missing"),
        (lambda: hm.map("net", data()), "model must be a torch.nn.Module; got str"),
    ],
)
def test_what_is_no_problem_is_refused_in_one_sentence(call: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call()
