"""K-FAC over processes with unequal parts of the data is that of one process with all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import InvalidInput
from process_groups import run_processes

KINDS = ("kfac", "ekfac", "best", "diagonal", "block", "full")


def problem(rank: int | None) -> hm.Problem:
    """Convolutions, a norm without factors, and parts of unequal size; None is all of the data."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.LayerNorm(9), nn.Linear(9, 3)).double()
    inputs, labels = torch.randn(11, 2, 4, dtype=torch.float64), torch.randint(0, 3, (11,))
    rows = {0: slice(7), 1: slice(7, 11), None: slice(11)}[rank]
    return hm.Problem(model, "cross_entropy", inputs[rows], labels[rows])


def worker(rank: int, count: int) -> dict[str, Tensor]:
    own = problem(rank)
    return {kind: hm.kronecker_curvature(own, kind, distributed=True).to_dense() for kind in KINDS}


def test_two_processes_give_the_curvature_of_one(tmp_path: Path) -> None:
    answers = run_processes(tmp_path, "test_kfac_processes", "worker", 2)
    whole = problem(None)
    for kind in KINDS:
        expected = hm.kronecker_curvature(whole, kind).to_dense()
        tolerance = 1e-6 if kind == "best" else 1e-12  # of the power method, and of rounding
        for found in answers:
            assert float((found[kind] - expected).norm() / expected.norm()) < tolerance


def test_one_process_has_no_group() -> None:
    with pytest.raises(InvalidInput, match="process group"):
        hm.kronecker_curvature(problem(None), distributed=True)
    with pytest.raises(InvalidInput, match="several processes needs part='outer_product'"):
        hm.kronecker_curvature(problem(None), part="loss", distributed=True)
