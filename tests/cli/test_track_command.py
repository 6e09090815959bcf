"""``hessmap track``: what the commands print, store and draw."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

import hessmap as hm
from hessmap.cli import app
from hessmap.maps.comparison import track_summary
from hessmap.records import CurvatureTrack
from hessmap.views.plots import track_figure

MODELS = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 4), nn.ReLU(), nn.Linear(4, 10))
"""


def run(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["tracks", *words], env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two checkpoints of a model of the user's, saved as they come."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HESSMAP_STORE", "runs.sqlite")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tracked_models", raising=False)
    (tmp_path / "tracked_models.py").write_text(MODELS)
    inputs, labels = hm.datasets.digits(num_samples=60)
    model = torch.nn.Sequential(torch.nn.Linear(64, 4), torch.nn.ReLU(), torch.nn.Linear(4, 10))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in (1, 2):
        torch.save(model.state_dict(), f"epoch-{epoch}.pt")
        torch.nn.functional.cross_entropy(model(inputs.float()), labels).backward()
        optimiser.step()
    return tmp_path


CHECKPOINTS = ("checkpoints", "tracked_models:net", "epoch-1.pt", "epoch-2.pt", "--samples", "60", "--count", "2")


def test_checkpoints_are_measured_stored_listed_and_shown(folder: Path) -> None:
    made = run(*CHECKPOINTS, "--name", "run1")
    assert "Stored as run1 in runs.sqlite: hessmap tracks show run1" in made.output
    assert "step 2 from epoch-2.pt" in made.output
    listed = run("list")
    assert "run1" in listed.output
    assert "64-4-10 relu bias" in listed.output
    shown = run("show", "run1", "--figure", "run1.png")
    assert "From step 1 to 2 the risk" in shown.output
    assert (folder / "run1.png").stat().st_size > 10_000
    again = run(*CHECKPOINTS, "--name", "run1", "--json")
    assert "step 1 from" not in again.output  # nothing is measured twice


def test_json_is_json_alone(folder: Path) -> None:
    made = CurvatureTrack.from_json(run(*CHECKPOINTS, "--name", "run1", "--json").stdout)
    assert CurvatureTrack.from_json(run("show", "run1", "--json").stdout) == made
    (summary,) = json.loads(run("list", "--json").stdout)
    assert (summary["name"], summary["num_points"], summary["last_step"]) == ("run1", 2, 2)
    client = sqlite3.connect("runs.sqlite")
    query = "SELECT track, step, sharpness, trace, trace_standard_error, gradient_overlap FROM track_points"
    points = client.execute(query).fetchall()
    client.close()
    assert points == [
        ("run1", p.step, p.sharpness, p.trace.value, p.trace.standard_error, p.gradient_overlap.value)
        for p in made.points
    ]


def test_what_is_not_there_is_said_in_a_sentence() -> None:
    assert "No track is stored in runs.sqlite" in run("list").output
    assert "the store must exist" in run("show", "run1", code=2).output
    run(*CHECKPOINTS, "--name", "run1")
    assert "track must be one of run1; got 'run2'. Did you mean 'run1'?" in run("show", "run2", code=2).output
    assert "there is no module 'absent'" in run("checkpoints", "absent:net", "epoch-1.pt", code=2).output


def test_stored_tracks_are_shown_without_torch(folder: Path) -> None:
    run(*CHECKPOINTS, "--name", "run1")
    program = "import sys; from hessmap.cli import app; app(['tracks', 'show', 'run1'], standalone_mode=False)"
    program += "; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")


def test_verdicts_and_figure_speak_of_what_was_measured() -> None:
    inputs, labels = hm.datasets.digits(num_samples=60)
    model = torch.nn.Linear(64, 10).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tracker = hm.Tracker(model, "cross_entropy", (inputs, labels), optimizer=optimizer, share=None, count=2)
    assert track_summary(tracker.track) == ("Nothing was measured yet.",)
    with pytest.raises(hm.errors.InvalidInput, match="a track must have a point to be drawn"):
        track_figure(tracker.track)
    tracker(0)
    assert "a track needs another point" in track_summary(tracker.track)[0]
    with torch.no_grad():
        model.weight.mul_(3)
    optimizer.param_groups[0]["lr"] = 1e3
    point = tracker(1)
    text = " ".join(track_summary(tracker.track))
    assert point is not None
    assert f"to {point.risk:.3g}." in text
    assert "At step 1 the preconditioned sharpness rises above the stability threshold of SGD, 2 / lr (0.002" in text
    assert "at 1 of 2 points a step is unstable" in text
    figure = track_figure(tracker.track)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[:2] == ["Risk and gradient", "Largest eigenvalues"]
    assert len(titles) == 4
    sharpness = {line.get_label(): line for line in figure.axes[1].lines}["largest: the sharpness"]
    assert sharpness.get_ydata().tolist() == tracker.track.column("sharpness").tolist()
