"""A map takes every problem; where Hessians cannot be formed, its estimates are compared with the dense map."""

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
from hessmap.records import CurvatureMap, Record, whole_of
from hessmap.views.tables import map_view


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
    monkeypatch.setattr("hessmap.maps.curvature_map.plan.available_bytes", lambda device=None: 1000)


def test_a_problem_has_the_map_of_its_model_and_data() -> None:
    problem = hm.Problem(model(), "squared", *data())
    assert hm.map(problem) == hm.map(model(), data(), "squared")
    assert hm.map(hm.Problem(model(), "cross_entropy", *data())) == hm.map(model(), data())


def test_estimates_are_those_of_the_dense_map() -> None:
    problem = hm.Problem(model(), "cross_entropy", *data())
    whole, found = hm.map(problem, dense=True), hm.map(problem, dense=False)
    assert whole.network.is_dense
    assert not found.network.is_dense
    values, vectors = np.linalg.eigh(hm.loss_hessian(problem).to_dense().numpy())
    numbers, exact = whole_of(found.network), whole_of(whole.network)
    assert numbers.sharpness.converged
    assert exact.sharpness.value == pytest.approx(values[-1], rel=1e-12)
    assert exact.negative_share.value == pytest.approx(-values[values < 0].sum() / abs(values).sum(), rel=1e-9)
    assert numbers.sharpness.value == pytest.approx(values[-1], rel=1e-3)
    assert numbers.sharpness.largest_stable_step == 2 / numbers.sharpness.value
    assert numbers.eigenvalues == pytest.approx(values[::-1][:10], abs=2e-3 * values[-1])
    for estimate, true in (
        (numbers.trace, exact.trace),
        (numbers.negative_share, exact.negative_share),
        (numbers.effective_dimension, exact.effective_dimension),
    ):
        assert estimate is not None
        assert true is not None
        error = estimate.standard_error + estimate.method_error
        assert abs(estimate.value - true.value) <= 5 * error + 1e-9 * abs(true.value), estimate
    assert [layer.name for layer in found.network.layers] == [layer.name for layer in whole.network.layers]
    for layer, known in zip(found.network.layers, whole.network.layers, strict=True):
        assert (layer.shape, layer.num_parameters, layer.kind) == (known.shape, known.num_parameters, known.kind)
        assert layer.rank is None
        assert abs(layer.trace - known.trace) <= 5 * layer.trace_error + 1e-9
        assert abs(layer.curvature_share - known.curvature_share) <= 5 * layer.share_error + 1e-9
        assert layer.top_eigenvalue == pytest.approx(known.top_eigenvalue, rel=0.02)
        assert layer.direction_share == pytest.approx(known.direction_share, abs=2e-2)
    assert sum(layer.curvature_share for layer in found.network.layers) == pytest.approx(1)
    place = slice(0, found.network.layers[0].num_parameters)
    share = float(np.square(vectors[place, -1]).sum())
    assert whole.network.layers[0].direction_share == pytest.approx(share, abs=1e-4)
    assert (found.network.risk, found.network.gradient_norm) == (whole.network.risk, whole.network.gradient_norm)
    assert Record.from_json(found.to_json()) == found


def test_the_sharpness_of_the_whole_comes_before_those_of_the_layers() -> None:
    found = hm.map(model(), data())
    sharpness = whole_of(found.network).sharpness.value
    assert found.rows()[1] == ("largest eigenvalue of the Hessian (sharpness)", f"{sharpness:.4g}")
    assert max(layer.top_eigenvalue or 0.0 for layer in found.network.layers) < sharpness
    assert found.to_dict()["network"]["whole"]["sharpness"]["value"] == sharpness


def test_estimates_are_shown_and_say_that_there_are_no_ranks(no_room: None) -> None:
    steps: list[str] = []
    found = hm.map(model(), data(), title="mine", progress=steps.append)
    assert found.title == "mine"
    assert "1000 B are free" in found.network.reason
    assert "products, about" in steps[0]
    assert found.work is not None
    assert 0 < found.work.num_products <= found.work.planned_products
    console = Console(width=100, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(map_view(found))
    console.file.close()
    text = " ".join(console.export_text().split())
    assert "Estimates from matrix-vector products (± is a standard error): dense Hessians need" in text
    assert found.summary[0] in text


def test_hessians_that_take_too_long_are_not_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessmap.maps.curvature_map.plan.matmul_flops_per_second", lambda: 1e3)
    monkeypatch.setattr("hessmap.maps.curvature_map.plan._QUICK", 500)
    wide = hm.FullyConnected((6, 60, 3), activation="tanh").build(seed=1)
    found = hm.map(wide, data())
    assert not found.network.is_dense
    assert "the limit is 60 s" in found.network.reason
    assert hm.map(wide, data(), seconds=None).network.is_dense
    assert hm.map(wide, data(), dense=True).network.is_dense
    assert hm.map(model(), data()).network.is_dense  # nobody waits for so few parameters


def test_a_problem_in_float32_is_estimated_and_says_why() -> None:
    problem = hm.Problem(model(), "cross_entropy", *data(), dtype=torch.float32)
    found = hm.map(problem)
    assert found.network.reason == "the problem is in float32, and dense Hessians are in float64"
    exact = hm.map(model(), data()).network["loss"].spectrum.eigenvalues
    assert whole_of(found.network).sharpness.value == pytest.approx(exact[0], rel=1e-2)
    with pytest.raises(InvalidInput, match="dense Hessians need a problem in float64"):
        hm.map(problem, dense=True)


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
    assert found.network.is_dense
    values = np.linalg.eigvalsh(hm.loss_hessian(problem).to_dense().numpy())
    assert found.network["loss"].spectrum.eigenvalues == pytest.approx(values[::-1], abs=1e-9 * abs(values).max())
    assert sum(layer.num_parameters for layer in found.network.layers) == problem.num_parameters
    assert Record.from_json(found.to_json()) == found
    monkeypatch.setattr("hessmap.maps.curvature_map.plan.available_bytes", lambda device=None: 1000)
    estimated = hm.map(problem)
    assert not estimated.network.is_dense
    assert whole_of(estimated.network).sharpness.value == pytest.approx(values[-1], rel=2e-3)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a dictionary", "inputs in one tensor"),
        ("some parameters", "0.weight is frozen or left out"),
        ("a penalty", "no penalty, but l2 is 0.1"),
        ("a forward", "called with its inputs alone"),
    ],
)
def test_formulas_are_silent_about_problems_they_do_not_cover(name: str, reason: str) -> None:
    torch.manual_seed(0)
    found = hm.map(PROBLEMS[name](), ranks=True)
    assert found.network.prediction is None
    assert reason in found.network.prediction_gap
    assert found.linear_counterpart is None


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
