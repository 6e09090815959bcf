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
from torch import Tensor, nn

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
    found = measured(hessian) | {"share": hessian.problem.share, "notes": hm.sharpness(hessian).provenance.notes}
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


class Tokens(nn.Module):
    """Logits (samples, positions, classes) of token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, 4), nn.Linear(4, 5)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.head(torch.tanh(self.embedding(ids)))
        return found


def case(name: str, rank: int | None) -> hm.Problem:
    """Classes, tokens of which the parts count different shares, and a sum over samples; None is all of the data."""
    if name == "classes":
        return problem(rank)
    torch.manual_seed(0)
    rows = {0: slice(7), 1: slice(7, 11), None: slice(11)}[rank]
    if name == "tokens":
        model = Tokens().double()
        ids, labels = torch.randint(5, (11, 6)), torch.randint(5, (11, 6))
        labels[:3] = -100
        labels[8, :5] = -100
        return hm.Problem(model, "cross_entropy", ids[rows], labels[rows])
    linear = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    inputs, classes = torch.randn(11, 4, dtype=torch.float64), torch.randint(0, 3, (11,))
    return hm.Problem(linear, nn.CrossEntropyLoss(reduction="sum"), inputs[rows], classes[rows])


CASES = ("classes", "tokens", "sum")
HESSIANS = (hm.loss_hessian, hm.ggn, hm.functional_hessian, hm.hessians.empirical_fisher)


def sums(of: hm.Problem) -> dict[str, Any]:
    """Everything of a problem that is a sum over samples."""
    moved = of.parameters + 0.1
    found: dict[str, Any] = {
        "risk": torch.tensor(of.risk()),
        "moved risk": torch.tensor(of.risk(moved)),
        "risk at": torch.tensor(of.at(moved).risk()),
        "gradient": of.gradient(),
        "gradient at": of.at(moved).gradient(),
        "number of samples": torch.tensor(of.num_samples),
    }
    for make in HESSIANS:
        hessian = make(of)
        diagonal = hessian.exact_diagonal()
        assert diagonal is not None
        found[f"diagonal {hessian.part}"] = diagonal
        found[f"layer traces {hessian.part}"] = torch.stack([diagonal[place].sum() for _, place in of.layout])
        found[f"product {hessian.part}"] = hessian @ torch.ones(of.num_parameters, dtype=torch.float64)
        found[f"block {hessian.part}"] = hessian.dense_block(slice(3), slice(2, 7))
    for name in hm.layers.layer_names(of):
        factors = hm.layers.layer_factors(of, name)
        for field in ("input_factor", "output_factor", "mean_patches"):
            found[f"{field} {name}"] = getattr(factors, field)
    for kind in ("kfac", "diagonal"):
        found[kind] = hm.kronecker_curvature(of, kind).to_dense()
    single = of.in_single_precision()
    assert single is not None
    found["single"] = single.gradient().double() - found["gradient"]
    return found


def summing(rank: int, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in CASES:
        whole = hm.distributed(case(name, rank), timeout=PATIENCE)
        found[name] = sums(whole)
        found[f"{name} notes"] = whole.notes
        found[f"{name} hash"] = whole.data_hash
    errors = {
        "jacobian": lambda: hm.output_jacobian(whole),
        "targets": lambda: whole.targets,
        "layer": lambda: hm.layer_hessian(whole, "0"),
        "outputs": lambda: whole.outputs(),
        "loss blocks": lambda: hm.kronecker_curvature(whole, part="loss"),
        "ranks": lambda: hm.map(whole, ranks=True),
        "penalty": lambda: hm.distributed(
            hm.Problem(nn.Linear(1, 2), nn.CrossEntropyLoss(reduction="sum"), torch.ones(2, 1), [0, 1], l2=0.1)
        ),
    }
    for name, call in errors.items():
        with pytest.raises(InvalidInput) as error:
            call()
        found[name] = str(error.value)
    return found


def test_sums_over_samples_are_those_of_all_processes(tmp_path: Path) -> None:
    answers = run_processes(tmp_path, "test_distributed", "summing", 2)
    for name in CASES:
        expected = sums(case(name, None))
        for found in answers:
            for key, value in expected.items():
                apart = float((found[name][key] - value).abs().max())
                limit = 1e-6 if key == "single" else 1e-12 * max(1.0, float(value.abs().max()))
                assert apart <= limit, (name, key, apart)
        for key in expected:
            assert torch.equal(answers[0][name][key], answers[1][name][key]), (name, key)
        assert answers[0][f"{name} hash"] == answers[1][f"{name} hash"]
    assert "the mean over 11 samples of 2 processes" in answers[0]["tokens notes"]
    assert "the sum over 11 samples of 2 processes" in answers[0]["sum notes"]
    one = answers[1]
    for name in ("jacobian", "targets", "layer", "outputs"):
        wanted = "needs single samples, each of which is on one process only; the data are split over 2 processes"
        assert wanted in one[name], one[name]
    assert "needs part='outer_product'" in one["loss blocks"]
    assert "ranks of a map need all samples in one process" in one["ranks"]
    assert "l2 is part of each process's risk" in one["penalty"]
