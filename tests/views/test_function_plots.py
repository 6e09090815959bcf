"""Figures of functions, from records made by hand or by tiny networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.views.plots import class_regions_figure, representations_figure, save_figure


def corner() -> nn.Module:
    model = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        model.weight[:] = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]])
    return model


def test_the_class_figure_rings_the_tripoint_and_says_that_grids_agree(tmp_path):
    regions = hm.maps.functions.class_regions(corner(), (-1.0, 1.0, -1.0, 1.5), grid_size=8)
    points = np.array([[0.5, 0.1], [-0.5, 0.8], [-0.5, -0.8]])
    figure = class_regions_figure(regions, points, np.arange(3))
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "1 tripoint (grids of 8 and 15 agree)"
    assert axes.collections[-1].get_offsets().tolist() == [pytest.approx([0.0, 0.0], abs=1e-12)]
    assert all(path.stat().st_size > 1000 for path in save_figure(figure, tmp_path, "regions"))


def test_the_layer_figure_has_three_panels_and_names_the_bottleneck(tmp_path):
    model = nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 5)).double()
    inputs = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    figure = representations_figure(hm.maps.functions.bottleneck_view(model, inputs), count=3)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert len(titles) == 3
    assert titles[0].endswith("narrowest: layer 0")
    assert all(path.stat().st_size > 1000 for path in save_figure(figure, tmp_path, "layers"))
