"""The factors of the layers in a map: right numbers, a reason where there are none, older maps readable."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from hessmap.hessians.operators import loss_hessian
from hessmap.layers import layer_factors, layer_hessian
from hessmap.layers.comparison import decoupling
from hessmap.maps.comparison import compare_maps
from hessmap.maps.curvature_map import curvature_map
from hessmap.maps.curvature_map.layers import measured_factors
from hessmap.problem.problem import Problem
from hessmap.records import CurvatureMap, Store, add_map
from hessmap.views.tables import comparison_view, map_view


def labelled(num_samples: int, *shape: int, num_classes: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = 1 + torch.randn(num_samples, *shape, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(num_classes, (num_samples,), generator=generator)


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double()


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    return nn.Sequential(*layers).double()


@pytest.fixture(scope="module")
def made() -> CurvatureMap:
    return curvature_map(perceptron(), labelled(40, 6))


def shown(renderable: object) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(renderable)
    console.file.close()
    return console.export_text()


@pytest.mark.parametrize(("model", "shape"), [(perceptron(), (6,)), (convolutional(), (2, 6, 6))])
def test_factors_are_those_of_the_layers_own_road(model: nn.Module, shape: tuple[int, ...]) -> None:
    data = labelled(40, *shape)
    found = curvature_map(model, data)
    problem = Problem(model, "cross_entropy", *data)
    dense = loss_hessian(problem).to_dense()
    for layer in found.network.layers:
        hessian = layer_hessian(problem, layer.name)
        place = problem.layout[f"{layer.name}.weight"]
        torch.testing.assert_close(hessian.to_dense(), dense[place, place])
        factors = layer.factors
        assert factors is not None
        assert factors.kronecker_overlap == pytest.approx(decoupling(hessian, 2).expectation.overlap[1], abs=1e-5)
        moments = hessian.factors["uncorrelated_patches"]
        values = torch.linalg.eigvalsh(moments.input_factor).flip(0)
        assert factors.input_ratio == pytest.approx(float(values[0] / values[1]), rel=1e-9)
        outputs = torch.linalg.eigvalsh(moments.output_factor).flip(0)
        assert factors.outlier_share == pytest.approx(
            float(outputs[:2].clamp(min=0).sum() / outputs.abs().sum()), rel=1e-9
        )
        assert factors.num_classes == 3
        assert factors.chance == pytest.approx(2 / hessian.size)
    assert found.network.factors_gap == ""


def test_the_summary_and_the_table_quote_them(made: CurvatureMap) -> None:
    (sentence,) = [text for text in made.summary if "K-FAC" in text]
    factors = [layer.factors for layer in made.network.layers if layer.factors]
    assert sentence.startswith("The top 2 K-FAC eigenvectors of a layer overlap by ")
    assert f"{max(found.kronecker_overlap for found in factors):.0%} (layer " in sentence
    assert "K-FAC overlap" not in shown(map_view(made))
    text = shown(map_view(made, factors=True))
    assert "output top 2" in text
    assert f"{factors[0].kronecker_overlap:.0%}" in text


class Summed(nn.Module):
    """A weight that acts through an operation which is not known as a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(18.0, dtype=torch.float64).reshape(6, 3).sin())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.einsum("ni,io->no", inputs, self.weight)


@pytest.mark.parametrize(
    ("model", "loss", "reason"),
    [
        (perceptron(), "squared", "needs a network whose outputs are logits under cross-entropy with labels"),
        (nn.Sequential(perceptron(), nn.Softmax(1)), "cross_entropy", "the outputs look like probabilities"),
        (Summed(), "cross_entropy", "there is no linear layer"),
    ],
)
def test_where_there_are_none_it_is_said_why(model: nn.Module, loss: str, reason: str) -> None:
    found = curvature_map(model, labelled(30, 6), loss)
    assert reason in found.network.factors_gap
    assert all(layer.factors is None for layer in found.network.layers)
    assert not any("K-FAC" in text for text in found.summary)
    text = " ".join(shown(map_view(found, factors=True)).split())
    assert "the layers have no Kronecker factors: " in text
    assert "overlap" not in text


def test_a_layer_with_fewer_outputs_than_classes_has_no_outliers() -> None:
    model = nn.Sequential(nn.Linear(6, 2), nn.Tanh(), nn.Linear(2, 3)).double()
    first, last = curvature_map(model, labelled(30, 6)).network.layers
    assert first.factors is not None
    assert last.factors is not None
    assert (first.factors.outlier_share, first.factors.outlier_ratio) == (None, None)
    assert last.factors.outlier_share == pytest.approx(1.0)
    assert last.factors.outlier_ratio == np.inf  # the softmax Hessian has rank c - 1


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0, 8.0])
def test_shares_of_an_indefinite_factor_are_shares(scale: float) -> None:
    """Large weights and a steep tanh make E[M] of the first layer indefinite: its trace is no measure of it."""
    model = perceptron()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    for seed in range(3):
        inputs, labels = labelled(40, 6)
        found = curvature_map(model, (inputs, labels.roll(seed)))
        for layer in found.network.layers:
            share = layer.factors.outlier_share
            assert 0 <= share <= 1
            values = torch.linalg.eigvalsh(
                layer_factors(Problem(model, "cross_entropy", inputs, labels.roll(seed)), layer.name).output_factor
            )
            top = values.topk(2).values.clamp(min=0).sum()
            assert share == pytest.approx(float(top / values.abs().sum()), rel=1e-9)


def test_a_dead_layer_has_no_factors_and_the_others_have() -> None:
    model = perceptron()
    with torch.no_grad():
        model[2].weight.zero_()
    first, last = curvature_map(model, labelled(30, 6)).network.layers
    assert first.factors is None
    assert last.factors is not None


class Attentive(nn.Module):
    """Three tokens of two entries; the weight of the attention's inputs is no layer's own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.embed, self.head = nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = self.embed(inputs.reshape(-1, 3, 2))
        return self.head(self.attention(tokens, tokens, tokens, need_weights=False)[0].mean(1))


def test_a_layer_that_is_not_seen_leaves_the_others_their_factors() -> None:
    found = curvature_map(Attentive().double(), labelled(30, 6)).network
    assert found.factors_gap == ""
    having = {layer.name for layer in found.layers if layer.factors is not None}
    assert {"embed", "head"} <= having
    assert "attention" not in having


def test_a_map_that_is_older_than_the_factors_is_read_shown_and_compared(made: CurvatureMap) -> None:
    content = json.loads(made.to_json())
    del content["network"]["factors_gap"]
    for layer in content["network"]["layers"]:
        del layer["factors"]
    older = CurvatureMap.from_json(json.dumps(content))
    assert [layer.factors for layer in older.network.layers] == [None, None]
    assert "fit 2" not in shown(map_view(older))
    comparison = compare_maps(older, made)
    assert [layer.factors for layer in comparison.layers] == [None, None]
    assert "fit 2" not in shown(comparison_view(comparison))


def test_two_maps_are_compared_by_their_factors(made: CurvatureMap) -> None:
    model = perceptron()
    with torch.no_grad():
        model[0].weight.add_(0.3)
    other = curvature_map(model, labelled(40, 6))
    comparison = compare_maps(made, other)
    before, after = made.network.layers[1].factors, other.network.layers[1].factors
    changed = comparison.layers[1].factors
    assert before is not None
    assert after is not None
    assert changed is not None
    assert (changed.input_ratio.old, changed.input_ratio.new) == (before.input_ratio, after.input_ratio)
    assert changed.kronecker_overlap.new == after.kronecker_overlap
    assert f"{before.kronecker_overlap:.0%} → {after.kronecker_overlap:.0%}" in shown(comparison_view(comparison))


def test_factors_stand_in_the_view_of_layers(made: CurvatureMap, tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    with Store(path, create=True) as store:
        add_map(store, "run1", made)
        bare = [replace(layer, factors=None) for layer in made.network.layers]
        add_map(store, "older", replace(made, network=replace(made.network, layers=tuple(bare))))
    client = sqlite3.connect(path)
    query = "SELECT map, input_ratio, outlier_share, kronecker_overlap FROM map_layers WHERE layer = '0'"
    read = client.execute(query).fetchall()
    client.close()
    found = made.network.layers[0].factors
    assert found is not None
    expected = ("run1", found.input_ratio, found.outlier_share, found.kronecker_overlap)
    assert sorted(read) == [("older", None, None, None), expected]


def normalised(norm: nn.Module) -> nn.Module:
    """A convolution with 4 outputs at 32 x 32 places, then what may be curved, then a linear layer."""
    parts = nn.Conv2d(1, 4, 3, padding=1), norm, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    return nn.Sequential(*parts)


@pytest.mark.parametrize(
    ("norm", "has_factors"),
    [
        (nn.GroupNorm(2, 4, affine=False), False),
        (nn.Tanh(), False),
        (nn.Softplus(), False),
        (nn.ReLU(), True),
        (nn.Identity(), True),
    ],
)
def test_a_layer_whose_matrices_do_not_fit_is_left_out(
    norm: nn.Module, has_factors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind what is curved every sample has a matrix of 4,096 rows; what is piecewise linear needs three rows."""
    torch.manual_seed(0)
    problem = Problem(normalised(norm), "cross_entropy", torch.randn(8, 1, 32, 32), torch.arange(8) % 3)
    asked: list[str] = []

    def watched(given: Problem, name: str) -> object:
        asked.append(name)
        assert has_factors or name == "4", "this would take minutes and gigabytes"
        return layer_factors(given, name)

    monkeypatch.setattr("hessmap.maps.curvature_map.layers.layer_factors", watched)
    found, gap = measured_factors(problem, None)
    assert set(found) == ({"0", "4"} if has_factors else {"4"})
    assert asked == (["0", "4"] if has_factors else ["4"])
    assert gap == ""


def test_where_no_layer_fits_it_is_said_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessmap.maps.curvature_map.layers._MOST_WORK", -1.0)
    problem = Problem(normalised(nn.Tanh()), "cross_entropy", torch.randn(8, 1, 32, 32), torch.arange(8) % 3)
    found, gap = measured_factors(problem, None)
    assert found == {}
    assert "those of '4' need the eigenvalues of 8 matrices of size 3" in gap
