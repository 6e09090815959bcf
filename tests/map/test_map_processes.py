"""A map of data that are split over processes has the numbers of the map of all data in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.records import CurvatureMap, encode
from patience import PATIENCE
from process_groups import run_processes


def problem(rank: int | None) -> hm.Problem:
    """Parts of unequal size; None is all of the data."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    inputs, labels = torch.randn(30, 4, dtype=torch.float64), torch.randint(0, 3, (30,))
    rows = {0: slice(19), 1: slice(19, 30), None: slice(30)}[rank]
    return hm.Problem(model, "cross_entropy", inputs[rows], labels[rows])


def maps(of: hm.Problem) -> list[CurvatureMap]:
    """From dense Hessians, and from products."""
    return [hm.map(of, dense=dense, seconds=None) for dense in (True, False)]


def worker(rank: int, count: int) -> list[CurvatureMap]:
    return maps(hm.distributed(problem(rank), timeout=PATIENCE))


def test_a_map_adds_up_over_processes(tmp_path: Path) -> None:
    first, second = run_processes(tmp_path, "test_map_processes", "worker", 2)
    assert [encode(made) for made in first] == [encode(made) for made in second]  # every process has the same record
    for made, expected in zip(first, maps(problem(None)), strict=True):
        found, wanted = made.network, expected.network
        assert (found.num_samples, found.reason) == (30, wanted.reason)
        assert found.risk == pytest.approx(wanted.risk, rel=1e-12)
        assert found.gradient_norm == pytest.approx(wanted.gradient_norm, rel=1e-12)
        assert found.whole is not None
        assert wanted.whole is not None
        assert wanted.whole.effective_dimension is not None
        assert found.whole.sharpness.value == pytest.approx(wanted.whole.sharpness.value, rel=1e-6)
        for name in ("trace", "effective_dimension", "negative_share"):
            value = getattr(wanted.whole, name)
            assert getattr(found.whole, name).value == pytest.approx(value.value, rel=1e-6, abs=1e-9), name
        for layer, other in zip(found.layers, wanted.layers, strict=True):
            assert layer.name == other.name
            for name in ("trace", "curvature_share", "direction_share"):
                assert getattr(layer, name) == pytest.approx(getattr(other, name), rel=1e-5), name
            assert layer.top_eigenvalue == pytest.approx(other.top_eigenvalue, rel=1e-2)  # as far as products went
            assert layer.factors is not None
            assert other.factors is not None
            for name in ("input_ratio", "mean_alignment", "outlier_share", "outlier_ratio"):
                assert getattr(layer.factors, name) == pytest.approx(getattr(other.factors, name), rel=1e-9), name
        assert any("the mean over 30 samples of 2 processes" in note for note in made.provenance.notes)
