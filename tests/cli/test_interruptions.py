"""Ctrl-C and closed streams, in real processes: one line and exit code 130, or a quiet end; never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTING = "raise KeyboardInterrupt"
# What a compiled library does that is interrupted while it loads.
WRAPPING = """
try:
    raise KeyboardInterrupt
except KeyboardInterrupt as error:
    raise ImportError("initialization failed") from error
"""
HIDING = """
try:
    raise KeyboardInterrupt
except KeyboardInterrupt:
    raise SystemError("returned NULL without setting an exception")
"""


def run(*words: str, folder: Path, **options: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "hessmap", *words]
    streams = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE} | options
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, cwd=folder, text=True, check=False, **streams
    )


@pytest.mark.parametrize("source", [INTERRUPTING, WRAPPING, HIDING])
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("typer", ["predict", "5-4-3"]),
        ("rich", ["predict", "5-4-3"]),
        ("numpy", ["map", "list", "--store", "none.sqlite"]),
        ("torch", ["map", "--samples", "20", "--epochs", "0"]),
        ("torch", ["certify"]),
        ("mine", ["map", "mine:net"]),
        ("mine", ["study", "run", "mine:STUDY"]),
    ],
)
def test_interruption_while_modules_load_is_one_line(
    source: str, module: str, words: list[str], tmp_path: Path
) -> None:
    (tmp_path / f"{module}.py").write_text(source)

    done = run(*words, folder=tmp_path)

    if module == "mine" and source != INTERRUPTING:
        assert done.returncode in (2, 130)  # an error of the user's own module, whatever is behind it
    else:
        assert done.returncode == 130
        assert done.stderr.splitlines()[-1] == "hessmap: interrupted"
    assert "Traceback" not in done.stderr
    assert "must not fail like this" not in done.stderr


def test_interruption_of_a_command_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def data(): raise KeyboardInterrupt\nnet = data\n")
    for words in (
        ["map", "mine:net", "--data", "mine:data"],
        ["--debug", "function", "mine:net", "--data", "mine:data"],
    ):
        done = run(*words, folder=tmp_path)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (130, "hessmap: interrupted")
        assert "Traceback" not in done.stderr


@pytest.fixture
def closed_pipe() -> int:
    """The end to write to of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


COMMANDS = [
    ["predict", "64-30-20-10"],
    ["predict", "64-30-20-10", "--json"],
    ["data"],
    ["papers"],
    ["--version"],
    ["--help"],
]


@pytest.mark.parametrize("words", COMMANDS)
def test_closed_pipe_ends_the_program_quietly(words: list[str], closed_pipe: int, tmp_path: Path) -> None:
    done = run(*words, folder=tmp_path, stdout=closed_pipe)

    assert done.stderr == ""
    assert done.returncode == (1 if words[0].startswith("--") else 141)  # typer prints these, and exits with 1


@pytest.mark.parametrize("words", COMMANDS)
def test_closed_output_is_discarded(words: list[str], tmp_path: Path) -> None:
    done = run(*words, folder=tmp_path, stdout=None, preexec_fn=lambda: os.close(1))

    assert (done.returncode, done.stderr) == (0, "")


def test_files_do_not_get_the_number_of_the_closed_output(tmp_path: Path) -> None:
    """What a library prints must not end in a file that was opened afterwards."""
    program = "import os; handle = open('file', 'w'); os.write(1, b'printed'); handle.close(); net = 0"
    (tmp_path / "mine.py").write_text(program)

    done = run("map", "mine:net", "--data", "mine:net", folder=tmp_path, stdout=None, preexec_fn=lambda: os.close(1))

    assert done.returncode == 2
    assert (tmp_path / "file").read_text() == ""


def test_all_streams_may_be_closed(tmp_path: Path) -> None:
    def close() -> None:
        for number in (0, 1, 2):
            os.close(number)

    options = {"stdin": None, "stdout": None, "stderr": None}
    assert run("predict", "5-4-3", folder=tmp_path, preexec_fn=close, **options).returncode == 0
    assert run("predict", "no", folder=tmp_path, preexec_fn=close, **options).returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", COMMANDS[:4])
def test_full_device_is_one_line(words: list[str], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = run(*words, folder=tmp_path, stdout=full)

    assert done.returncode == 1
    assert done.stderr == "hessmap: the output must be writable; No space left on device.\n"
