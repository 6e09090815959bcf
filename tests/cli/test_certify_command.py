"""``hessmap certify``: from a trained model to a promise, a record and a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hessmap.certificates import Certificate
from hessmap.views.cli import app

runner = CliRunner()
QUICK = ["--iterations", "40", "--draws", "1000"]

OWN = """
import copy
import hessmap as hm

data = hm.datasets.gaussian_mixture(300, 4, num_classes=2, separation=6.0)
untrained = hm.FullyConnected((4, 5, 2), bias=True, activation="relu").build(seed=0)
trained = copy.deepcopy(untrained)
hm.train(trained, data, epochs=3)
"""
SUBJECT = ["own_certificate:trained", "--initial", "own_certificate:untrained", "--data", "own_certificate:data"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_certificate.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("own_certificate", None)


def run(*arguments: str) -> Result:
    return runner.invoke(app, ["certify", *arguments])


def test_own_model_is_certified_and_the_file_verifies(folder: Path) -> None:
    done = run(*SUBJECT, *QUICK, "--test", "own_certificate:data", "--save", "certificate.npz")

    assert done.exit_code == 0, done.stderr
    for shown in ("With confidence 96.5%", "divergence of posterior", "error on test data", "Assumed"):
        assert shown in done.stdout
    own = sys.modules["own_certificate"]
    certificate = Certificate.load(folder / "certificate.npz")
    assert certificate.verify(own.trained, own.data) == certificate


def test_json_is_the_certificate_without_its_posterior() -> None:
    done = run(*SUBJECT, *QUICK, "--json")

    found = Certificate.from_json(done.stdout)
    assert found.num_samples == 300
    assert found.posterior == {}


def test_checkpoint_is_written_and_read_again(folder: Path) -> None:
    options = [*SUBJECT, *QUICK, "--checkpoint", "fit.pt", "--json"]
    first, second = (Certificate.from_json(run(*options).stdout) for _ in range(2))

    assert (folder / "fit.pt").exists()
    assert first == second


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["own_certificate:trained", "--data", "own_certificate:data"], "--initial is missing. Keep a copy before"),
        (["own_certificate:trained", "--initial", "own_certificate:untrained"], "--data is missing"),
        (["--initial", "own_certificate:untrained"], "go with a model of your own; --initial came without"),
        ([*SUBJECT, "--save", "own_certificate.py/x.npz"], "own_certificate.py/x.npz does not"),
        ([*SUBJECT, "--save", "."], "a file must be named; . is a folder"),
        ([*SUBJECT, "--delta", "2"], "delta must lie strictly between 0 and 1; got 2.0"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_two(arguments: list[str], words: str) -> None:
    done = run(*arguments)

    assert done.exit_code == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
