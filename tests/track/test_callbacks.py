"""The callbacks of trainers, with stand-ins for their packages; tests/models has the packages themselves."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import hessmap as hm
from hessmap.cli import app
from hessmap.errors import InvalidInput


@pytest.fixture
def tracker(tmp_path: Path) -> hm.Tracker:
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(20, 3, generator=generator), torch.arange(20) % 2
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    options: dict[str, Any] = {"count": 2, "max_probes": 4, "name": "run", "store": tmp_path / "store.sqlite"}
    return hm.Tracker(model, "cross_entropy", data, share=None, **options)


def test_a_trainer_of_hugging_face_calls_it_after_every_step(
    tracker: hm.Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(TrainerCallback=object))
    callback = tracker.hugging_face_callback()
    args = SimpleNamespace(learning_rate=0.3)
    scheduler = SimpleNamespace(get_last_lr=lambda: [0.1])
    callback.on_step_end(args, SimpleNamespace(global_step=1), None, lr_scheduler=scheduler)
    callback.on_step_end(args, SimpleNamespace(global_step=2), None)
    callback.on_train_end(args, SimpleNamespace(global_step=2), None)
    assert [(point.step, point.learning_rate) for point in tracker.track.points] == [(1, 0.1), (2, 0.3)]


def test_the_optimiser_of_a_trainer_is_that_of_the_step_reports(
    tracker: hm.Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(TrainerCallback=object))
    callback, args = tracker.hugging_face_callback(), SimpleNamespace(learning_rate=0.3)
    other = torch.optim.AdamW(nn.Linear(2, 2).parameters())
    callback.on_step_end(args, SimpleNamespace(global_step=1), None, optimizer=other)
    assert tracker.optimizer is None
    optimizer = torch.optim.AdamW(tracker.subject.model.parameters(), lr=1e-3)
    wrapped = SimpleNamespace(optimizer=optimizer)  # as accelerate does
    callback.on_step_end(args, SimpleNamespace(global_step=2), None, optimizer=wrapped)
    assert tracker.optimizer is optimizer
    first, second = tracker.track.points
    assert first.step_report is None
    assert second.step_report is not None
    assert second.step_report.stability_threshold is not None
    assert second.step_report.stability_threshold.value == pytest.approx(38e3)


def test_lightning_calls_it_once_for_every_step_of_the_optimiser(
    tracker: hm.Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightning", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "lightning.pytorch", SimpleNamespace(Callback=object))
    callback = tracker.lightning_callback()
    optimiser = SimpleNamespace(param_groups=[{"lr": 0.2}])
    for batch, step in enumerate((0, 1, 1, 2)):  # gradients of two batches are added up for step 2
        callback.on_train_batch_end(SimpleNamespace(global_step=step, optimizers=[optimiser]), None, None, None, batch)
    callback.on_train_end(None, None)
    assert [(point.step, point.learning_rate) for point in tracker.track.points] == [(0, 0.2), (1, 0.2), (2, 0.2)]


def test_a_missing_package_is_named(tracker: hm.Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("transformers", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InvalidInput, match="this callback needs transformers; it is not installed"):
        tracker.hugging_face_callback()
    with pytest.raises(InvalidInput, match="this callback needs lightning; it is not installed"):
        tracker.lightning_callback()


def test_a_track_has_a_page(tracker: hm.Tracker, tmp_path: Path) -> None:
    tracker(0)
    tracker(1)
    page = tmp_path / "run.html"
    store = str(tmp_path / "store.sqlite")
    done = CliRunner().invoke(app, ["tracks", "show", "run", "--store", store, "--html", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "<svg" in text
    assert "Largest eigenvalues" in text
    assert "hessmap tracks show --html=track.html run" in text
