"""Two processes on loopback with a shard each give what one process gives with all the data; a lost one is an error."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import Popen

import pytest
import torch
import torch.distributed as dist
from torch import nn

import hessmap as hm
from hessmap.errors import InvalidInput, RankLost
from patience import PATIENCE

WIDTH = 43


def problem(rank: int | None) -> hm.Problem:
    """Shards of unequal size; None is all of the data."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    inputs, labels = torch.randn(11, 4, dtype=torch.float64), torch.randint(0, 3, (11,))
    rows = {0: slice(7), 1: slice(7, 11), None: slice(11)}[rank]
    return hm.Problem(model, "cross_entropy", inputs[rows], labels[rows], l2=0.1)


def worker(rank: int, store: str, answer: str, dies: bool) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    operator = hm.hessians.across_ranks(hm.loss_hessian(problem(rank)), timeout=PATIENCE)
    if dies and rank == 1:
        os._exit(0)
    try:
        found = operator @ torch.eye(WIDTH, dtype=torch.float64)
        torch.save((found, hm.top_eigenpairs(operator, 2).eigenvalues, operator.share), f"{answer}-{rank}")
    except RankLost as error:
        torch.save(str(error), f"{answer}-{rank}")


def run(folder: Path, dies: bool) -> None:
    code = "import sys; sys.path[:0] = sys.argv[1].split(); import test_across_ranks as t; "
    code += f"t.worker(int(sys.argv[2]), sys.argv[3], sys.argv[4], {dies})"
    paths = [f"{Path(__file__).parent} {Path(__file__).parent.parent}", str(folder / "store"), str(folder / "answer")]
    commands = [[sys.executable, "-c", code, paths[0], str(rank), *paths[1:]] for rank in (0, 1)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    workers = [Popen(command, env=environment) for command in commands]
    try:
        for process in workers:
            process.wait(PATIENCE)
    finally:
        for process in workers:
            process.kill()


def test_two_processes_give_the_result_of_one(tmp_path):
    run(tmp_path, dies=False)
    whole = hm.loss_hessian(problem(None))
    expected = whole @ torch.eye(WIDTH, dtype=torch.float64)
    for rank, share in ((0, 7 / 11), (1, 4 / 11)):
        found, values, own = torch.load(f"{tmp_path}/answer-{rank}", weights_only=False)
        assert float((found - expected).abs().max()) < 1e-12
        assert values == pytest.approx(hm.top_eigenpairs(whole, 2).eigenvalues, rel=1e-10)
        assert own == pytest.approx(share)


def test_a_process_that_dies_is_an_error_and_no_hang(tmp_path):
    run(tmp_path, dies=True)
    message = torch.load(f"{tmp_path}/answer-0", weights_only=False)
    assert message.startswith("every process must answer within 600 s; process 0 of 2 got:")


def test_without_a_process_group_it_is_refused():
    with pytest.raises(InvalidInput, match="need an initialised process group; there is none"):
        hm.hessians.across_ranks(hm.loss_hessian(problem(None)))
