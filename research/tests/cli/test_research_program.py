"""``hessmap study`` and ``hessmap papers`` as programs: light help, completion, Ctrl-C, closed and full streams."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import hessmap_research
from command_lines import (
    INTERRUPTIONS,
    assert_closed_output_is_discarded,
    assert_full_device_is_one_line,
    assert_interrupted,
    assert_quiet_in_closed_pipe,
    closed_pipe,
    loaded_after,
)
from hessmap.cli import app
from hessmap_research.cli.study import _names_of_studies

__all__ = ["closed_pipe"]  # a fixture


@pytest.mark.parametrize("arguments", [["study", "--help"], ["study", "run", "--help"], ["papers", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    assert loaded_after(*arguments) == set()


def test_names_of_studies_are_completed() -> None:
    assert "fcn/rank-vs-width" in _names_of_studies("fcn/rank")
    assert _names_of_studies("nothing/") == []


@pytest.mark.parametrize("source", INTERRUPTIONS)
def test_interruption_while_a_study_loads_is_one_line(source: str, tmp_path: Path) -> None:
    assert_interrupted(source, "mine", ["study", "run", "mine:STUDY"], tmp_path)


def test_closed_pipe_ends_the_program_quietly(closed_pipe: int, tmp_path: Path) -> None:
    assert_quiet_in_closed_pipe(["papers"], closed_pipe, tmp_path)


def test_closed_output_is_discarded(tmp_path: Path) -> None:
    assert_closed_output_is_discarded(["papers"], tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_device_is_one_line(tmp_path: Path) -> None:
    assert_full_device_is_one_line(["papers"], tmp_path)


@pytest.mark.parametrize("words", [["papers", "--status", "verified"], ["papers", "2", "--status", "open"]])
def test_mistake_of_a_package_is_not_called_the_users_own_in_a_clone(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(hessmap_research.__path__[0]).parents[2])
    monkeypatch.setattr("hessmap_research.papers.STATUSES", None)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert done.stderr.startswith("hessmap: this is a bug in hessmap; TypeError: ")
