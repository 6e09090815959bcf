"""Processes with a part of the data each give what one process gives with all of it; a lost one is an error.

The oracle is the same problem with all samples in this process.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import hessmap as hm
from hessmap.errors import InvalidInput, NotReproducible, ProcessLost
from hessmap.linalg import Processes
from patience import PATIENCE
from process_groups import run_processes

SHORT = 5.0  # seconds, for a process that will never answer
NO_TIME = 0  # which is refused


def problem(rank: int | None, shift: float = 0.0, wrapped: bool = False) -> hm.Problem:
    """Parts of unequal size; None is all of the data."""
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    with torch.no_grad():
        model[0].weight += shift
    inputs, labels = torch.randn(11, 4, dtype=torch.float64), torch.randint(0, 3, (11,))
    rows = {0: slice(7), 1: slice(7, 11), None: slice(11)}[rank]
    model = nn.parallel.DistributedDataParallel(model) if wrapped else model
    return hm.Problem(model, "cross_entropy", inputs[rows], labels[rows], l2=0.1)


def measured(hessian: Any) -> dict[str, Any]:
    traces = hm.trace_estimate(hessian)
    return {
        "dense": hessian.to_dense(),
        "product": hessian @ torch.eye(hessian.size, dtype=torch.float64)[:, :3],
        "values": hm.top_eigenpairs(hessian, 2).eigenvalues,
        "trace": (traces.value, traces.method, traces.num_products),
        "density": hm.density_estimate(hessian).density,
        "rank": hm.numerical_rank(hessian).value,
        "scale": hessian.scale,
        "solution": hm.measurement.krylov_solve(hessian, np.ones(hessian.size), 1.0).solution,
    }


def worker(rank: int, count: int) -> dict[str, Any]:
    own = problem(rank, wrapped=True)
    hessian = hm.distributed(hm.loss_hessian(own), timeout=PATIENCE)
    found = measured(hessian) | {"share": hessian.share, "notes": hm.sharpness(hessian).provenance.notes}
    found["outer"] = hm.distributed(hm.ggn(own), timeout=PATIENCE).scale
    try:
        hm.distributed(hm.loss_hessian(problem(rank, shift=0.1 * rank)), timeout=PATIENCE)
    except NotReproducible as error:
        found["apart"] = str(error)
    return found


def test_two_processes_give_the_result_of_one(tmp_path: Path) -> None:
    answers = run_processes(tmp_path, "test_distributed", "worker", 2)
    whole = hm.loss_hessian(problem(None))
    expected = measured(whole)
    for share, found in zip((7 / 11, 4 / 11), answers, strict=True):
        assert found["share"] == pytest.approx(share)
        for name in ("dense", "product"):
            assert float((found[name] - expected[name]).abs().max()) < 1e-12
        for name in ("values", "density", "solution", "scale"):
            assert found[name] == pytest.approx(expected[name], rel=1e-7, abs=1e-9)
        assert found["trace"][0] == pytest.approx(expected["trace"][0], rel=1e-12)
        assert found["trace"][1:] == ("exact", 0)  # diagonals of layers, added up
        assert found["rank"] == expected["rank"]
        assert found["outer"] == pytest.approx(expected["scale"], rel=1e-2)
        assert "the mean over 11 samples of 2 processes" in found["notes"]
        assert "must have the same parameters; they differ by up to 0.05" in found["apart"]
    assert np.array_equal(answers[0]["values"], answers[1]["values"])  # every process has the same record


def losing(rank: int, count: int, how: str, folder: str) -> str:
    hessian = hm.distributed(hm.loss_hessian(problem(rank)), timeout=PATIENCE if how == "dies" else SHORT)
    if rank == 1:
        if how == "dies":
            os._exit(0)
        while not Path(folder, "answer-0").exists():
            time.sleep(0.05)
        os._exit(0)
    try:
        hm.sharpness(hessian)
    except ProcessLost as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("dies", "the connection to a process was closed .*Look for a process that ended"),
        ("hangs", "one did not answer in time .*Look for a process that waits, or raise timeout="),
    ],
)
def test_a_lost_process_is_an_error_with_its_reason(tmp_path: Path, how: str, reason: str) -> None:
    message, nothing = run_processes(tmp_path, "test_distributed", "losing", 2, how, str(tmp_path))
    assert nothing is None
    limit = "600" if how == "dies" else "5"
    assert message.startswith(f"every process must answer within {limit} s; in process 0 of 2 ")
    assert re.search(reason, message), message


def test_without_a_process_group_it_is_refused() -> None:
    with pytest.raises(InvalidInput, match="need an initialised process group; there is none"):
        hm.distributed(hm.loss_hessian(problem(None)))


def test_a_missing_backend_is_named(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        processes = Processes()
        processes.count = 2
        with pytest.raises(InvalidInput, match=r"a backend for tensors on meta; it has gloo for cpu"):
            processes.sum(torch.zeros(3, device="meta"))
    finally:
        dist.destroy_process_group()
    with pytest.raises(InvalidInput, match="timeout must be positive"):
        Processes(timeout=NO_TIME, alone=True)
