"""``hessmap step``: a function of the user's own in, sentences, a table, JSON or a figure out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hessmap.cli import app
from hessmap.records import StepReport

PROGRAM = """
import torch
import hessmap as hm

inputs, labels = hm.datasets.digits(num_samples=50)
model = torch.nn.Linear(64, 10).double()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

def training():
    return model, optimizer, "cross_entropy", (inputs, labels)

def own_objective():
    def objective(model, batch):
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
    return {"model": model, "optimizer": optimizer, "objective": objective, "data": [(inputs, labels)], "l2": 0.01}

def three():
    return model, optimizer, "cross_entropy"

def without_data():
    return {"model": model, "optimizer": optimizer}

def number():
    return 3

constant = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "stepped.py").write_text(PROGRAM)
    return tmp_path


def test_the_step_of_a_training_is_shown() -> None:
    done = CliRunner().invoke(app, ["step", "stepped:training", "--batch-size", "10"])
    assert done.exit_code == 0, done.output
    assert "Stable: the preconditioned sharpness is" in done.output
    assert "AdamW, learning rate 0.001" in done.output


def test_json_is_the_record_and_a_figure_is_written(folder: Path) -> None:
    done = CliRunner().invoke(app, ["step", "stepped:own_objective", "--json", "--figure", "step.png"])
    assert done.exit_code == 0, done.output
    found = StepReport.from_json(done.stdout)
    assert found.optimizer == "AdamW"
    assert json.loads(done.stdout)["record"] == "StepReport"
    assert (folder / "step.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("three", "it returned 3 values"),
        ("number", "it returned a int"),
        ("without_data", "its dictionary has no data"),
        ("constant", "it is a int"),
    ],
)
def test_other_functions_are_refused_in_one_sentence(name: str, text: str) -> None:
    done = CliRunner().invoke(app, ["step", f"stepped:{name}"])
    assert done.exit_code == 2
    assert "must be a function that returns (model, optimizer, loss, data)" in done.output
    assert text in done.output


def test_stored_gradients_are_asked_for() -> None:
    done = CliRunner().invoke(app, ["step", "stepped:training", "--stored-gradient"])
    assert done.exit_code == 2
    assert "needs the gradients of a backward pass" in done.output


def test_help_teaches() -> None:
    text = CliRunner().invoke(app, ["step", "--help"], env={"COLUMNS": "100"}).output
    for words in ("What you write", "38 / lr", "hessmap step my:training --json", "Nothing is trained"):
        assert words.split()[0] in text
    assert "stability threshold" in text
