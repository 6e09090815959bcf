"""The program as a whole: help, version, errors in one sentence, nothing heavy loaded before it is needed."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from command_lines import loaded_after
from hessmap.cli import app
from hessmap.cli.options import STORE
from hessmap.errors import InvalidInput
from hessmap.records import DEFAULT_STORE

runner = CliRunner()


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["map", "--help"], ["predict", "--help"], ["--version"], []],
)
def test_help_and_version_load_nothing_heavy(arguments: list[str]) -> None:
    assert loaded_after(*arguments) == set()


@pytest.mark.parametrize("arguments", [["predict", "64-30-20-10"], ["data"]])
def test_predictions_and_listings_need_no_torch(arguments: list[str]) -> None:
    assert loaded_after(*arguments) <= {"numpy"}


def test_help_teaches_by_examples() -> None:
    shown = runner.invoke(app, ["--help"])
    assert shown.exit_code == 0
    for words in ("Examples", "hessmap map", "hessmap predict 64-30-20-10", "--version", "--debug"):
        assert words in shown.output


@pytest.mark.parametrize("command", ["map", "predict", "data"])
def test_every_command_has_examples_and_json(command: str) -> None:
    shown = runner.invoke(app, [command, "--help"])
    assert shown.exit_code == 0
    assert "Examples" in shown.output
    assert "--json" in shown.output


def test_version_is_the_installed_one() -> None:
    assert runner.invoke(app, ["--version"]).output.strip() == f"hessmap {version('hessmap')}"


def test_an_error_is_one_sentence_on_stderr_and_exit_code_2() -> None:
    done = runner.invoke(app, ["predict", "64-30-20-10", "--loss", "sqared"])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("hessmap: loss must be one of")
    assert "Did you mean 'squared'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_lets_the_traceback_through() -> None:
    done = runner.invoke(app, ["--debug", "predict", "64-30-20-10", "--loss", "sqared"])
    assert isinstance(done.exception, InvalidInput)


def test_an_unknown_command_is_refused() -> None:
    done = runner.invoke(app, ["mapp"])
    assert done.exit_code == 2
    assert "mapp" in done.stderr


def test_the_default_store_is_that_of_the_records() -> None:
    assert STORE == DEFAULT_STORE
