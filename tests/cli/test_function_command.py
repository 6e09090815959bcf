"""``hessmap function``: the rank of a function in words, JSON and a figure; what it refuses, in one sentence each."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hessmap.cli import app
from hessmap.records import BottleneckView, FunctionRank, RepresentationCost

runner = CliRunner()

OWN = """
import torch
from torch import nn
import hessmap as hm

inputs = torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
pair = (inputs, torch.zeros(40, dtype=torch.int64))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*pair), batch_size=16)
one = inputs[:1]
words = "no data"
narrow = hm.FullyConnected((5, 8, 2, 8, 4), activation="relu", bias=True).build(seed=0, init="kaiming")
images = nn.Sequential(nn.Unflatten(1, (5, 1)), nn.Identity())
broken = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 2)).double()
broken[0].weight.data[0, 0] = 1e200
broken[2].weight.data[:] = 1e200
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_function.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("own_function", None)


def run(*arguments: str) -> Result:
    return runner.invoke(app, ["function", *arguments])


def test_without_arguments_a_small_network_on_digits_is_explained(folder: Path) -> None:
    done = run("--epochs", "1", "--samples", "30", "--figure", "layers.png")

    assert done.exit_code == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert "The function has a bottleneck rank" in shown or "The function has bottleneck rank" in shown
    for part in ("Jacobians", "Layers", "bottleneck", "deeper", "construction", "the least that its Jacobians allow"):
        assert part in shown
    assert (folder / "layers.png").stat().st_size > 5000


@pytest.mark.parametrize("data", ["own_function:inputs", "own_function:pair", "own_function:loader"])
def test_json_holds_the_three_records_of_a_narrow_network(data: str) -> None:
    done = run("own_function:narrow", "--data", data, "--tolerance", "1e-9", "--certify", "--json")

    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    rank = FunctionRank.from_dict(found["function_rank"])
    assert rank.num_samples == 40
    assert rank.bottleneck is not None
    assert (rank.bottleneck.lower_kind, rank.bottleneck.upper) == ("certificate", 2)
    assert rank.value <= 2
    view = BottleneckView.from_dict(found["bottleneck_view"])
    assert [layer.width for layer in view.layers] == [8, 2, 8, 4]
    cost = RepresentationCost.from_dict(found["representation_cost"])
    assert {bound.name for bound in cost.bounds} == {"weights", "jacobians", "path", "deeper"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["own_function:broken", "--data", "own_function:inputs"], "activations must be finite"),
        (["own_function:images", "--data", "own_function:inputs"], "one vector of outputs per sample"),
        (["own_function:narrow", "--data", "own_function:one"], "at least two samples"),
        (["--samples", "1"], "at least two samples; got --samples 1"),
        (["own_function:narrow", "--data", "own_function:words"], "data must be inputs, (inputs, targets) or a loader"),
        (["--data", "own_function:inputs"], "inputs with integer labels"),
        (["own_function:narrow"], "the inputs must fit the model"),
        (["own_function:narrow", "--data", "own_function:pair", "--tolerance", "2"], "relative_tolerance must be"),
        (["own_function:narow", "--data", "own_function:pair"], "Similar names in own_function: narrow"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(arguments: list[str], message: str) -> None:
    done = run(*arguments)

    assert done.exit_code == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("hessmap: ")]
    assert message in line


def test_a_figure_of_an_unknown_kind_is_refused() -> None:
    done = run("own_function:narrow", "--data", "own_function:pair", "--figure", "layers.txt")

    assert done.exit_code == 2
    assert "a figure file must end in" in done.stderr
