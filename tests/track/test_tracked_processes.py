"""Trackers on two gloo processes: the first measures alone, or all together on the data of all; the first writes."""

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
from hessmap.records import encode
from hessmap.records.store import Store, load_track
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


QUANTITIES = ("eigenvalues", "gradient_overlap", "trace", "preconditioned_sharpness", "critical_learning_rate")


def tracked(rank: int | None, folder: str, is_late: bool = False, log: Any = None) -> hm.Tracker:
    """A tracker called by callbacks at fixed weights; parts of unequal size, None is all of the data."""
    sys.modules["transformers"] = SimpleNamespace(TrainerCallback=object)  # type: ignore[assignment]
    sys.modules["lightning.pytorch"] = SimpleNamespace(Callback=object)  # type: ignore[assignment]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    data = torch.randn(20, 3, dtype=torch.float64), torch.arange(20) % 2
    rows = {0: slice(13), 1: slice(13, 20), None: slice(20)}[rank]
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    tracker = hm.Tracker(
        model,
        "cross_entropy",
        (data[0][rows], data[1][rows]),
        share=None,
        optimizer=optimiser,
        quantities=QUANTITIES,
        count=2,
        tolerance=1e-9,
        name=f"late {is_late}".replace(" ", "-"),
        store=Path(folder, f"store-{rank is None}.sqlite"),
        distributed=rank is not None,
        log=log,
    )
    if is_late:
        destination = f"file://{folder}/late"
        torch.distributed.init_process_group("gloo", init_method=destination, rank=rank, world_size=2)
        callback = tracker.lightning_callback()
        trainer = SimpleNamespace(optimizers=[optimiser], global_step=1)
        callback.on_train_batch_end(trainer, model, None, None, 0)
        callback.on_train_end(trainer, model)
    else:
        callback = tracker.hugging_face_callback()
        callback.on_step_end(SimpleNamespace(learning_rate=0.1), SimpleNamespace(global_step=1), None)
        callback.on_train_end(None, None, None)
    return tracker


def together(rank: int, count: int, folder: str) -> dict[str, Any]:
    logged: list[dict[str, float]] = []
    early = tracked(rank, folder, log=lambda values, step: logged.append(values))
    found: dict[str, Any] = {"early": early.track.points, "samples": early.track.num_samples, "logged": logged}
    found["available"] = early.track.settings["num_available"]
    torch.distributed.destroy_process_group()
    return found | {"late": tracked(rank, folder, is_late=True).track.points}


def test_processes_measure_together_on_the_data_of_all(tmp_path: Path) -> None:
    answers = run_processes(tmp_path, "test_tracked_processes", "together", 2, str(tmp_path))
    (expected,) = tracked(None, str(tmp_path)).track.points
    assert expected.trace is not None
    assert expected.step_report is not None
    for found in answers:
        assert found["samples"] == found["available"] == 20
        for when in ("early", "late"):
            (point,) = found[when]
            for name in ("risk", "gradient_norm", "eigenvalues", "gradient_overlap", "weights_hash"):
                value, own = (getattr(each, name) for each in (expected, point))
                value, own = getattr(value, "value", value), getattr(own, "value", own)
                assert own == (value if isinstance(value, str) else pytest.approx(value, rel=1e-9)), name
            assert (point.trace.value, point.trace.method) == (pytest.approx(expected.trace.value), "exact")
            for name in ("preconditioned_sharpness", "critical_learning_rate"):
                value = getattr(expected.step_report, name).value
                assert getattr(point.step_report, name).value == pytest.approx(value, rel=1e-6), name
            assert encode(point) == encode(answers[0][when][0])  # every process has the same record
    assert [len(found["logged"]) for found in answers] == [1, 0]
    with Store(tmp_path / "store-False.sqlite") as store:
        assert load_track(store, "late-False").points[0].risk == pytest.approx(expected.risk, rel=1e-9)


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
