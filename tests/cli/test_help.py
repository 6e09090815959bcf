"""Help: examples fit a terminal of 80 columns, flags have no type, piped tables no padding."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from hessmap.cli import app

runner = CliRunner()


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command of the program, groups included."""
    yield words
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*words, name))


COMMANDS = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_examples_fit_80_columns_and_flags_have_no_type(words: tuple[str, ...]) -> None:
    shown = runner.invoke(app, [*words, "--help"], env={"COLUMNS": "80"})
    assert shown.exit_code == 0
    assert "<bool>" not in shown.output
    examples = shown.output.partition("Examples")[2].splitlines()
    assert [line for line in examples if re.match(r" \S", line) and line.split()[0].startswith("-")] == []


def test_the_longest_line_of_every_example_is_short() -> None:
    def epilogs(command: Any) -> Iterator[str]:
        yield command.epilog or ""
        for below in getattr(command, "commands", {}).values():
            yield from epilogs(below)

    lines = [
        re.sub(r"\[/?(?:bold|dim)\]", "", line)
        for epilog in epilogs(typer.main.get_command(app))
        for line in epilog.splitlines()
        if line.startswith("  ")
    ]
    assert lines
    assert [line for line in lines if len(line) > 76] == []


def test_tables_that_are_piped_have_no_spaces_at_the_ends_of_lines() -> None:
    shown = runner.invoke(app, ["predict", "64-30-20-10"]).output
    assert "Hessian" in shown
    assert [line for line in shown.splitlines() if line != line.rstrip()] == []


def test_completion_can_be_installed() -> None:
    assert "--install-completion" in runner.invoke(app, ["--help"]).output
