"""What the tests of studies share: a store of their own and a folder in which toy cases say what they did."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "hessmap.sqlite"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    (folder / "said").touch()
    monkeypatch.setenv("TOY_SCRATCH", str(folder))
    return folder


@pytest.fixture(autouse=True)
def _inherited_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the machine reaches a test, and no test writes to the folder it is started in."""
    for name in ("HESSMAP_STORE", "HESSMAP_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
