"""Maps of networks at the edge: every sentence is true or absent."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hessmap.maps.curvature_map import curvature_map
from hessmap.records import CurvatureMap


def network(scale: float = 1.0, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), activation(), nn.Linear(8, 3)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


def samples(count: int = 40) -> Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def labels(count: int = 40) -> Tensor:
    return torch.randint(3, (count,), generator=torch.Generator().manual_seed(2))


def mapped(model: nn.Module, inputs: Tensor, targets: Tensor) -> CurvatureMap:
    loss = "squared" if targets.is_floating_point() else "cross_entropy"
    return curvature_map(model, (inputs, targets), loss)


def text_of(found: CurvatureMap) -> str:
    return " ".join(found.summary)


@pytest.mark.parametrize("scale", [1e60, 1e-60])
def test_the_norm_of_a_gradient_neither_overflows_nor_vanishes(scale: float) -> None:
    """At 1e60 the squares of its entries are above 1e308, at 1e-60 with targets of 1e-120 below 1e-308."""
    model, inputs = network(scale), samples()
    targets = torch.full((40, 3), scale**2, dtype=torch.float64)
    found = mapped(model, inputs, targets).network.gradient_norm
    (0.5 * (model(inputs) - targets).square().sum() / 40).backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    largest = float(gradient.abs().max())
    assert found == pytest.approx(largest * float((gradient / largest).norm()), rel=1e-9)


@pytest.mark.parametrize("kind", ["constant", "one output"])
def test_no_layer_is_called_heaviest_where_none_is_curved(kind: str) -> None:
    model: nn.Module = network()
    targets = labels()
    if kind == "constant":
        model, targets = nn.Sequential(*network(), nn.Threshold(1e9, 1.0)), samples()[:, :3]
    else:
        model, targets = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)).double(), 0 * targets
    found = mapped(model, samples(), targets)
    assert found.network["loss"].rank == 0
    assert "is curved" not in text_of(found)


def test_a_layer_without_curvature_has_no_part_in_the_findings_about_layers() -> None:
    """Saturated units: the first layer has no curvature, and shares of nothing are nothing."""
    found = mapped(network(activation=nn.Tanh), 1e6 * samples(), labels())
    assert [layer.curvature_share == 0 for layer in found.network.layers] == [True, False]
    assert "% (layer 2) with those of its exact block" in text_of(found)
    assert "is curved" not in text_of(found)


@pytest.mark.parametrize("count", [1, 40])
def test_inputs_of_one_direction_have_an_infinite_gap(count: int) -> None:
    found = mapped(network(), samples(1).repeat(count, 1), labels(1).repeat(count))
    factors = found.network.layers[0].factors
    assert factors is not None
    assert factors.input_ratio > 1e12
    assert "inf" not in text_of(found)


@pytest.mark.parametrize("scale", [1e-120, 1e-60])
def test_tiny_weights_are_not_said_to_lack_rank(scale: float) -> None:
    """Products of 1e-240 have maximal rank; their curvature is below what a spectrum shows."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    text = text_of(curvature_map(model, (samples(), samples()[:, :3]), "squared", ranks=True))
    assert "contradict the theorem" in text
    assert "of the largest are not counted here" in text
