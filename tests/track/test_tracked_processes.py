"""A tracker under DDP on two gloo processes: the first measures and writes, the second trains on."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.linalg import is_first_process
from process_groups import run_processes


def worker(rank: int, count: int, folder: str) -> dict[str, Any]:
    sys.modules["transformers"] = SimpleNamespace(TrainerCallback=object)  # type: ignore[assignment]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    wrapped = nn.parallel.DistributedDataParallel(model)
    generator = torch.Generator().manual_seed(rank)
    data = torch.randn(20, 3, generator=generator), torch.arange(20) % 2
    optimiser = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    options: dict[str, Any] = {"count": 2, "max_probes": 4, "name": "run", "store": Path(folder, "store.sqlite")}
    tracker = hm.Tracker(wrapped, "cross_entropy", data, share=None, **options)
    callback = tracker.hugging_face_callback()
    for step in range(1, 4):
        optimiser.zero_grad()
        nn.functional.cross_entropy(wrapped(data[0]), data[1]).backward()
        optimiser.step()
        callback.on_step_end(SimpleNamespace(learning_rate=0.1), SimpleNamespace(global_step=step), None)
    callback.on_train_end(None, None, None)
    found = {"steps": [point.step for point in tracker.track.points], "weights": model[0].weight.detach()}
    if not rank:
        found["risk"] = tracker.track.points[-1].risk
        found["expected"] = float(nn.functional.cross_entropy(model(data[0]), data[1]))
    return found


def test_the_first_process_measures_and_writes(tmp_path: Path) -> None:
    first, second = run_processes(tmp_path, "test_tracked_processes", "worker", 2, str(tmp_path))
    assert first["steps"] == [1, 2, 3]
    assert second["steps"] == []
    assert first["risk"] == pytest.approx(first["expected"], rel=1e-5)
    assert torch.equal(first["weights"], second["weights"])  # the measurement did not disturb the training


@pytest.mark.parametrize(
    ("variables", "is_first"),
    [
        ({}, True),
        ({"RANK": "0", "LOCAL_RANK": "0"}, True),
        ({"RANK": "3", "LOCAL_RANK": "0"}, False),
        ({"LOCAL_RANK": "1"}, False),
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, False),
    ],
)
def test_before_a_group_exists_the_variables_of_launchers_decide(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_first: bool
) -> None:
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_first_process() == is_first
