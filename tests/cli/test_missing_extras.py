"""What an extra would bring and is not installed is said in one sentence, with the command that installs it."""

from __future__ import annotations

import importlib
import sys

import pytest

import hessmap.__main__ as program
from hessmap.errors import MissingExtra, require_extra


def test_the_program_without_its_extra_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match="2"):
        program.main()
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        'hessmap: this needs the package typer; it is not installed. Install it with: pip install "hessmap[cli]".'
    ]


def test_figures_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith("hessmap.views.plots")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=r'package matplotlib; it is not installed.*"hessmap\[plots\]"'):
        importlib.import_module("hessmap.views.plots")


def test_a_missing_extra_is_an_import_error_too() -> None:
    with pytest.raises(ImportError, match="no_such_package"):
        require_extra("no_such_package", "plots")
