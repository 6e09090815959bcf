"""Ctrl-C and closed streams, in real processes: one line and exit code 130, or a quiet end; never a traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from command_lines import (
    INTERRUPTIONS,
    assert_closed_output_is_discarded,
    assert_full_device_is_one_line,
    assert_interrupted,
    assert_quiet_in_closed_pipe,
    closed_pipe,
    run_program,
)

__all__ = ["closed_pipe"]  # a fixture


@pytest.mark.parametrize("source", INTERRUPTIONS)
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("typer", ["predict", "5-4-3"]),
        ("rich", ["predict", "5-4-3"]),
        ("numpy", ["maps", "list", "--store", "none.sqlite"]),
        ("torch", ["map", "--samples", "20", "--epochs", "0"]),
        ("torch", ["certify"]),
        ("mine", ["map", "mine:net"]),
    ],
)
def test_interruption_while_modules_load_is_one_line(
    source: str, module: str, words: list[str], tmp_path: Path
) -> None:
    assert_interrupted(source, module, words, tmp_path)


def test_interruption_of_a_command_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def data(): raise KeyboardInterrupt\nnet = data\n")
    for words in (
        ["map", "mine:net", "--data", "mine:data"],
        ["--debug", "function", "mine:net", "--data", "mine:data"],
    ):
        done = run_program(*words, folder=tmp_path)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (130, "hessmap: interrupted")
        assert "Traceback" not in done.stderr


COMMANDS = [
    ["predict", "64-30-20-10"],
    ["predict", "64-30-20-10", "--json"],
    ["data"],
    ["--version"],
    ["--help"],
]


@pytest.mark.parametrize("words", COMMANDS)
def test_closed_pipe_ends_the_program_quietly(words: list[str], closed_pipe: int, tmp_path: Path) -> None:
    assert_quiet_in_closed_pipe(words, closed_pipe, tmp_path)


@pytest.mark.parametrize("words", COMMANDS)
def test_closed_output_is_discarded(words: list[str], tmp_path: Path) -> None:
    assert_closed_output_is_discarded(words, tmp_path)


def test_files_do_not_get_the_number_of_the_closed_output(tmp_path: Path) -> None:
    """What a library prints must not end in a file that was opened afterwards."""
    program = "import os; handle = open('file', 'w'); os.write(1, b'printed'); handle.close(); net = 0"
    (tmp_path / "mine.py").write_text(program)

    done = run_program(
        "map", "mine:net", "--data", "mine:net", folder=tmp_path, stdout=None, preexec_fn=lambda: os.close(1)
    )

    assert done.returncode == 2
    assert (tmp_path / "file").read_text() == ""


def test_all_streams_may_be_closed(tmp_path: Path) -> None:
    def close() -> None:
        for number in (0, 1, 2):
            os.close(number)

    options = {"stdin": None, "stdout": None, "stderr": None}
    assert run_program("predict", "5-4-3", folder=tmp_path, preexec_fn=close, **options).returncode == 0
    assert run_program("predict", "no", folder=tmp_path, preexec_fn=close, **options).returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", COMMANDS[:3])
def test_full_device_is_one_line(words: list[str], tmp_path: Path) -> None:
    assert_full_device_is_one_line(words, tmp_path)
