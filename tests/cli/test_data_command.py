"""``hessmap data``: what is here, and how to get what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hessmap.cli import app

runner = CliRunner()


@pytest.fixture
def without_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HESSMAP_DATA", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_missing_files_are_named_with_the_folder_that_wants_them(without_files: Path) -> None:
    done = runner.invoke(app, ["data"])
    assert done.exit_code == 0
    flat = done.stdout.replace("\n", "")
    assert "mnist lacks 4 files" in done.stdout
    assert "train-images-idx3-ubyte" in done.stdout
    assert str(without_files / "mine") in flat


def test_json_holds_every_data_set_and_the_folders_in_order(without_files: Path) -> None:
    done = runner.invoke(app, ["data", "--json"])
    listing = json.loads(done.stdout)
    assert [item["name"] for item in listing["data_sets"]] == [
        "digits",
        "mnist",
        "fashion_mnist",
        "cifar10",
        "cifar100",
    ]
    assert [item["is_present"] for item in listing["data_sets"]][:2] == [True, False]
    assert listing["folders"][:2] == [str(without_files / "mine"), str(without_files / "cache" / "hessmap" / "data")]


def test_verify_tells_a_changed_file_from_the_published_one(without_files: Path) -> None:
    folder = without_files / "mine" / "mnist"
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (folder / f"{part}-{kind}-ubyte").write_bytes(b"not the published content")
    listing = json.loads(runner.invoke(app, ["data", "--verify", "--json"]).stdout)
    mnist = next(item for item in listing["data_sets"] if item["name"] == "mnist")
    assert mnist["is_present"]
    assert mnist["is_original"] is False
