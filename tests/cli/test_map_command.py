"""``hessmap map``: from a command to tables, figures and a record."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hessmap.cli import app
from hessmap.records import CurvatureMap

runner = CliRunner()
SMALL = ["--widths", "64-4-10", "--samples", "120", "--epochs", "2"]

OWN = """
import torch
from torch import nn

def data():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(30, 5, generator=generator), torch.randint(3, (30,), generator=generator)

net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_map_subject.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("own_map_subject", None)


@pytest.fixture
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing them is most of the time of a small map."""
    monkeypatch.setattr("hessmap.views.plots.save_figure", lambda *_: [])


def mapped(*arguments: str) -> Result:
    done = runner.invoke(app, ["map", *arguments])
    assert done.exit_code == 0, done.stderr
    return done


def stored(*arguments: str) -> Result:
    done = runner.invoke(app, ["maps", *arguments])
    assert done.exit_code == 0, done.stderr
    return done


@pytest.mark.usefixtures("_no_figures")
def test_ranks_are_shown_on_request_with_the_network_without_activations() -> None:
    done = mapped(*SMALL, "--ranks")
    for text in ("Ranks of the network", "Ranks of the network without activations", "H_f (functional)", "exact"):
        assert text in done.stdout
    assert "6 dense Hessians of 296 parameters" in done.stderr


def test_a_small_network_is_trained_mapped_and_written(folder: Path) -> None:
    done = mapped(*SMALL, "--name", "small")
    for shown in ("64-4-10 relu", "largest stable learning rate", "Layers", "Findings"):
        assert shown in done.stdout
    assert "rank" not in done.stdout
    assert "2 dense Hessians of 296 parameters" in done.stderr
    assert "Written to hessmap-runs/map-small" in done.stderr
    written = folder / "hessmap-runs" / "map-small"
    names = sorted(path.name for path in written.iterdir())
    figures = [f"{name}.{kind}" for name in ("density", "layers", "spectrum") for kind in ("png", "svg")]
    assert names == sorted([*figures, "map.json"])
    assert CurvatureMap.from_json((written / "map.json").read_text()).network.num_samples == 120


@pytest.mark.usefixtures("_no_figures")
def test_json_is_the_record_and_nothing_else(folder: Path) -> None:
    done = mapped(*SMALL, "--json", "--output", "there", "--loss", "squared", "--bias")
    found = CurvatureMap.from_json(done.stdout)
    assert found.network.description == "64-4-10 relu bias"
    assert found.network.loss == "squared"
    assert found.linear_counterpart is None
    assert (folder / "there" / "map.json").read_text() == done.stdout.strip()


@pytest.mark.usefixtures("_no_figures")
def test_the_same_seed_gives_the_same_map() -> None:
    first, second, other = (CurvatureMap.from_json(mapped(*SMALL, "--json", "--seed", seed).stdout) for seed in "001")
    assert first == second
    assert first != other


def test_a_model_and_data_of_the_users_own_are_mapped_as_they_are() -> None:
    done = mapped("own_map_subject:net", "--data", "own_map_subject:data", "--name", "mine")
    assert "5-4-3 tanh bias" in done.stdout
    assert "training" not in done.stderr


def test_a_network_too_large_for_dense_hessians_is_estimated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessmap.maps.curvature_map.plan.available_bytes", lambda device=None: 1000)
    done = mapped(*SMALL, "--name", "large")
    expected = ("64-4-10 relu", "(± is a standard error): dense Hessians need", "sharpness", "Findings")
    for shown in expected:
        assert shown in " ".join(done.stdout.split())
    assert "estimates from products" in done.stderr
    assert "Stored as large" in done.stderr
    written = folder / "hessmap-runs" / "map-large"
    names = ["density.png", "density.svg", "layers.png", "layers.svg", "map.json"]
    assert sorted(path.name for path in written.iterdir()) == names
    found = CurvatureMap.from_json((written / "map.json").read_text())
    assert found.network.num_parameters == 296
    monkeypatch.setattr("hessmap.views.plots.save_figure", lambda *_: [])
    assert CurvatureMap.from_json(mapped(*SMALL, "--json").stdout).network == found.network
    assert CurvatureMap.from_json(stored("show", "large", "--json").stdout) == found


@pytest.mark.usefixtures("_no_figures")
def test_estimates_are_compared_with_exact_maps(folder: Path) -> None:
    mapped(*SMALL, "--name", "exact")
    mapped(*SMALL, "--name", "estimated", "--estimate")
    done = stored("compare", "exact", "estimated", "--html", "both.html")
    text = " ".join(done.stdout.split())
    assert "One of the maps is made of estimates" in text
    assert "within error" in text
    assert "The three Hessians" not in (folder / "both.html").read_text()
    stored("show", "estimated", "--html", "one.html")
    page = (folder / "one.html").read_text()
    assert "(± is a standard error): requested by dense=False." in page
    assert "largest stable learning rate" in page


@pytest.mark.usefixtures("_no_figures")
def test_widths_follow_the_data_unless_given() -> None:
    done = mapped("--samples", "60", "--side", "4", "--epochs", "1", "--json")
    assert CurvatureMap.from_json(done.stdout).network.description == "16-30-20-10 relu"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["own_map_subject:nett"], "Similar names in own_map_subject: net"),
        (["own_map_subject:net"], "must fit"),
        (["own_map_subject:net", "--widths", "5-4-3"], "--widths is for the network that hessmap trains"),
        (["--data", "digitz"], "Did you mean 'digits'?"),
        (["--data", "own_map_subject:data", "--samples", "3"], "choose from a listed data set"),
        (["--name", "a/b"], "consist of letters"),
        (
            ["--output", "own_map_subject.py"],
            "the file must be writable; own_map_subject.py/map.json is not (not a directory)",
        ),
        ([*SMALL, "--loss", "sqared"], "Did you mean 'squared'?"),
        ([*SMALL, "--activation", "rellu"], "Did you mean 'relu'"),
    ],
)
def test_what_cannot_be_mapped_is_one_sentence(arguments: list[str], message: str) -> None:
    done = runner.invoke(app, ["map", *arguments])
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.usefixtures("_no_figures")
def test_an_objective_and_a_loss_of_ones_own(folder: Path) -> None:
    source = (
        "import torch.nn.functional as F\n"
        "def scale(model, x):\n    return model(x).square().mean()\n"
        "batches = [data()[0]]\n"
        "def own(outputs, targets):\n    return F.cross_entropy(outputs, targets, reduction='none')\n"
    )
    (folder / "own_map_subject.py").write_text(OWN + source)
    common = ["map", "own_map_subject:net", "--seconds", "5", "--no-files", "--json"]
    given = ["--data", "own_map_subject:batches", "--objective", "own_map_subject:scale"]
    found = runner.invoke(app, [*common, *given])
    assert found.exit_code == 0, found.output
    assert CurvatureMap.from_json(found.stdout).network.loss == "scale"
    losses = [
        CurvatureMap.from_json(runner.invoke(app, [*common, "--data", "own_map_subject:data", "--loss", loss]).stdout)
        for loss in ("own_map_subject:own", "cross_entropy")
    ]
    sharpness = [made.network.whole.sharpness.value for made in losses]
    assert sharpness[0] == pytest.approx(sharpness[1], rel=1e-6)
    alone = runner.invoke(app, ["map", "--objective", "own_map_subject:scale"])
    assert alone.exit_code == 2
    assert "needs a model" in alone.stderr
