"""``hessmap certify``: from a trained model to a promise, a record and a file."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hessmap.certificates import Certificate, Verification
from hessmap.cli import app

runner = CliRunner()
QUICK = ["--iterations", "40", "--draws", "1000"]

OWN = """
import copy
import hessmap as hm

data = hm.datasets.gaussian_mixture(300, 4, num_classes=2, separation=6.0)
untrained = hm.FullyConnected((4, 5, 2), bias=True, activation="relu").build(seed=0)
trained = copy.deepcopy(untrained)
hm.train(trained, data, epochs=3)


def build():
    return copy.deepcopy(untrained)


def own_training(model, part):
    hm.train(model, part, epochs=2)
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
    lines = done.stdout.splitlines()
    answer = next(place for place, line in enumerate(lines) if line.startswith("Better than a plain held-out bound: "))
    assert answer < next(place for place, line in enumerate(lines) if line.startswith("held-out bound, prior's mean"))
    command = "hessmap certify own_certificate:trained --initial own_certificate:untrained --data own_certificate:data"
    assert f"{command} --verify certificate.npz" in done.stderr

    checked = run(*SUBJECT, "--verify", "certificate.npz", "--seed", "5", "--draws", "5000")

    assert checked.exit_code == 0, checked.stdout
    assert "The certificate is confirmed: it claims an error of at most" in " ".join(checked.stdout.split())
    assert "test error is stated, and was not recomputed" in checked.stdout


def test_certificate_that_is_not_confirmed_has_exit_code_one(folder: Path) -> None:
    run(*SUBJECT, *QUICK, "--save", "certificate.npz")
    certificate = Certificate.load(folder / "certificate.npz")
    dataclasses.replace(certificate, bound=0.01).save(folder / "better.npz")
    swapped = [*SUBJECT[:2], "own_certificate:trained", *SUBJECT[3:]]

    for verdict, subject, file in (("not confirmed", SUBJECT, "better.npz"), ("refused", swapped, "certificate.npz")):
        done = run(*subject, "--verify", file, "--seed", "5", "--draws", "5000")
        record = run(*subject, "--verify", file, "--seed", "5", "--draws", "5000", "--json")

        assert done.exit_code == record.exit_code == 1
        assert f"The certificate is {verdict}" in done.stdout
        assert "Reasons" in done.stdout
        assert Verification.from_json(record.stdout).verdict == verdict


def test_grid_of_the_user_is_used_and_has_to_be_handed_over_again(folder: Path) -> None:
    done = run(*SUBJECT, *QUICK, "--grid", "1,50", "--save", "certificate.npz")
    assert "--grid 1,50 --verify certificate.npz" in done.stderr
    options = [*SUBJECT, "--verify", "certificate.npz", "--seed", "5", "--draws", "5000"]

    assert Certificate.load(folder / "certificate.npz").settings["grid"] == {
        "scale": 1.0,
        "precision": 50,
        "num_points": None,
    }
    assert run(*options, "--grid", "1,50").exit_code == 0
    assert run(*options).exit_code == 1


def test_a_function_that_builds_a_network_is_enough(folder: Path) -> None:
    subject = ["own_certificate:build", "--data", "own_certificate:data"]
    done = run(*subject, "--epochs", "4", "--save", "certificate.npz")

    assert done.exit_code == 0, done.stderr
    assert "hessmap certify own_certificate:build --data own_certificate:data --verify certificate.npz" in done.stderr
    shown = " ".join(done.stdout.split())
    assert "the prior was trained on 150 separate samples, the first 0.5 of an order from seed 0" in shown
    found = Certificate.load(folder / "certificate.npz")
    assert (found.num_prior_samples, found.num_samples, found.kl, found.posterior_kind) == (150, 150, 0.0, "prior")

    checked = run(*subject, "--verify", "certificate.npz", "--seed", "5")
    assert checked.exit_code == 0, checked.stdout
    assert "that the prior depends on no other samples is the certifier's statement" in " ".join(checked.stdout.split())


def test_training_and_share_of_the_prior_are_the_users(folder: Path) -> None:
    subject = ["own_certificate:build", "--data", "own_certificate:data", "--train", "own_certificate:own_training"]
    done = run(*subject, "--prior-fraction", "0.2", "--posterior", "tightest", *QUICK, "--json")

    found = Certificate.from_json(done.stdout)
    assert (found.num_prior_samples, found.delta_share) == (60, 0.5)


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
        (
            ["own_certificate:build", "--data", "own_certificate:data", "--prior-fraction", "1.5"],
            "prior_fraction must be in [0, 1); got 1.5",
        ),
        (
            ["own_certificate:build", "--data", "own_certificate:data", "--train", "own_certificate:data"],
            "a training is a function of a network and its samples; own_certificate:data is a",
        ),
        (
            ["own_certificate:build", "--data", "own_certificate:data", "--prior-data", "own_certificate:data"],
            "samples of a prior go with its network; --prior-data came without --initial",
        ),
        (["own_certificate:trained", "--initial", "own_certificate:untrained"], "--data is missing"),
        (["--initial", "own_certificate:untrained"], "go with a model of your own; --initial came without"),
        ([*SUBJECT, "--save", "own_certificate.py/x.npz"], "own_certificate.py/x.npz is not (not a directory)"),
        ([*SUBJECT, "--save", "."], "the file must be writable; . is not (it is a folder)"),
        ([*SUBJECT, "--verify", "absent.npz"], "a file to load must be readable; absent.npz: No such file"),
        ([*SUBJECT, "--verify", "own_certificate.py"], "must contain a result of hessmap; own_certificate.py: "),
        (
            [*SUBJECT, "--grid", "1"],
            "a grid is given as SCALE,PRECISION[,POINTS]; got '1'. Write for example --grid 0.1,100",
        ),
        ([*SUBJECT, "--grid", "0,100"], "the scale of a grid must be positive and finite; got 0.0"),
        ([*SUBJECT, "--delta", "2"], "delta must be strictly between 0 and 1; got 2.0"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_two(arguments: list[str], words: str) -> None:
    done = run(*arguments)

    assert done.exit_code == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_certificate_is_shown_where_its_file_cannot_be_written_after_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Certificate, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Certificate, "save", fail)
    done = runner.invoke(app, ["certify", *SUBJECT, *QUICK, "--save", "x.npz"])
    assert done.exit_code == 2
    assert "With confidence" in done.stdout
    assert "the file must be writable; x.npz is not (No space left on device)" in done.stderr
