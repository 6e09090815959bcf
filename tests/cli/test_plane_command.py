"""``hessmap plane``: lines, planes and barriers in words, JSON and a figure; what it refuses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

import hessmap as hm
from hessmap.cli import app
from hessmap.records import LossPlane

runner = CliRunner()
OWN = """
import torch
import hessmap as hm

inputs = torch.randn(20, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
train = (inputs, torch.arange(20) % 3)
first, second = (hm.FullyConnected((5, 4, 3), activation="tanh").build(seed=seed) for seed in (0, 1))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_planes.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("own_planes", None)


def run(*arguments: str) -> Result:
    return runner.invoke(app, ["plane", *arguments])


def test_the_barrier_between_two_models_is_that_of_python(folder: Path) -> None:
    own = ("own_planes:first", "--data", "own_planes:train", "--other", "own_planes:second", "--points", "5")
    done = run(*own, "--json")
    assert done.exit_code == 0, done.stderr
    found = LossPlane.from_json(done.stdout)
    inputs = torch.randn(20, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first, second = (hm.FullyConnected((5, 4, 3), activation="tanh").build(seed=seed) for seed in (0, 1))
    problem = hm.Problem(first, "cross_entropy", inputs, torch.arange(20) % 3)
    assert found == hm.loss_plane(problem, second, num_points=5)
    shown = run(*own, "--figure", "plane.png")
    assert found.barrier is not None
    assert f"Barrier {found.barrier.height:.4g}" in shown.stdout
    assert (folder / "plane.png").stat().st_size > 5000


def test_a_small_network_is_trained_without_a_model() -> None:
    done = run("--samples", "30", "--epochs", "1", "--points", "3", "--directions", "random", "--dimensions", "1")
    assert done.exit_code == 0, done.stderr
    assert "random direction 1" in done.stdout
    assert "The quadratic model explains" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--other", "own_planes:second"), "needs a model of your own"),
        (("own_planes:first", "--data", "own_planes:train", "--directions", "flat"), "sharpest"),
        (("own_planes:first", "--data", "own_planes:train", "--extent", "-1"), "extent must be"),
        (("--figure", "plane.txt"), ".png"),
    ],
)
def test_what_it_refuses_is_one_sentence(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
