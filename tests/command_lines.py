"""Command lines that must be refused in one sentence, and the folders that they are run in; for all three packages."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hessmap.cli import app

# Modules that cannot be imported, each in its own way, and files that are not what they seem.
BROKEN_FILES = {
    "no_python.py": "def broken(:\n",
    "failing.py": "raise ValueError('at import [/red]')\n",
    "leaving.py": "import sys; sys.exit(3)\n",
    "wanting.py": "import not_there_at_all\n",
    "lying.py": "def __getattr__(name): raise RuntimeError('odd')\n",
    "a_file": "text",
    "other.sqlite": "no database",
    "junk.pt": "junk",
}
# Where no file can be made: see ``unwritable_folder``.
PLACES = ("/proc/none/target", "a_file/target", "protected/target", "loop/target", "x" * 300)


def odd_folder(folder: Path, files: Mapping[str, str]) -> Path:
    """Write the broken files and some more into a folder."""
    for name, text in {**BROKEN_FILES, **files}.items():
        (folder / name).write_text(text)
    (folder / "a_folder").mkdir()
    return folder


def enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it the current folder, with its modules, and forget what the environment says about stores and data."""
    for name in ("HESSMAP_STORE", "HESSMAP_MODELS", "HESSMAP_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    for module in folder.glob("*.py"):  # another folder may have had one of the same name
        monkeypatch.delitem(sys.modules, module.stem, raising=False)


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if "__pycache__" not in path.parts}


def assert_one_sentence(line: str, folder: Path) -> None:
    """The line ends in one sentence and an exit code, without a traceback, and leaves no file behind."""
    before = files_in(folder)
    result = CliRunner().invoke(app, shlex.split(line), env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code in (1, 2)
    assert "Traceback" not in result.output
    said = [text for text in result.stderr.splitlines() if text.startswith("hessmap:")]
    assert len(said) == 1 or (not said and "Usage:" in result.stderr)
    assert "this is a bug in hessmap" not in result.stderr
    assert result.exit_code == (1 if said and "your own code" in said[0] else 2)
    assert files_in(folder) == before


def unwritable_folder(folder: Path) -> Path:
    """Fill a folder with files and folders that cannot be written to."""
    (folder / "a_file").write_text("text")
    (folder / "a_folder").mkdir()
    (folder / "protected").mkdir()
    (folder / "protected").chmod(0o555)
    (folder / "loop").symlink_to("loop")
    for name in ("read_only", "read_only.png"):
        (folder / name).write_text("mine")
        (folder / name).chmod(0o444)
    (folder / "a_folder.png").mkdir()
    return folder


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every path with the time of its last change, and its bytes."""
    found = {}
    for path in folder.rglob("*"):
        if "__pycache__" not in path.parts:
            is_file = path.is_file() and not path.is_symlink()
            found[str(path)] = (path.lstat().st_mtime_ns, path.read_bytes() if is_file else b"")
    return found


def assert_not_writable(line: str, folder: Path) -> None:
    """The line is refused before any work, and nothing in the folder changes."""
    before = contents(folder)
    done = CliRunner().invoke(app, shlex.split(line))
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("hessmap: the file must be writable; "), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert {name: value[1] for name, value in contents(folder).items()} == {
        name: value[1] for name, value in before.items()
    }


def run_program(*words: str, folder: Path, **options: object) -> subprocess.CompletedProcess[str]:
    """``python -m hessmap`` in a process of its own, which finds the modules of the folder first."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "hessmap", *words]
    streams = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE} | options
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, cwd=folder, text=True, check=False, **streams
    )


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
INTERRUPTIONS = (INTERRUPTING, WRAPPING, HIDING)


def assert_interrupted(source: str, module: str, words: list[str], folder: Path) -> None:
    """A command whose module is interrupted while it loads prints one line and exits with 130."""
    (folder / f"{module}.py").write_text(source)

    done = run_program(*words, folder=folder)

    if module == "mine" and source != INTERRUPTING:
        assert done.returncode in (2, 130)  # an error of the user's own module, whatever is behind it
    else:
        assert done.returncode == 130
        assert done.stderr.splitlines()[-1] == "hessmap: interrupted"
    assert "Traceback" not in done.stderr
    assert "this is a bug in hessmap" not in done.stderr


@pytest.fixture
def closed_pipe() -> int:
    """The end to write to of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def assert_quiet_in_closed_pipe(words: list[str], pipe: int, folder: Path) -> None:
    done = run_program(*words, folder=folder, stdout=pipe)

    assert done.stderr == ""
    assert done.returncode == (1 if words[0].startswith("--") else 141)  # typer prints these, and exits with 1


def assert_closed_output_is_discarded(words: list[str], folder: Path) -> None:
    done = run_program(*words, folder=folder, stdout=None, preexec_fn=lambda: os.close(1))

    assert (done.returncode, done.stderr) == (0, "")


def assert_full_device_is_one_line(words: list[str], folder: Path) -> None:
    with open("/dev/full", "w") as full:
        done = run_program(*words, folder=folder, stdout=full)

    assert done.returncode == 1
    assert done.stderr == "hessmap: the output must be writable; No space left on device.\n"


HEAVY = "{'torch', 'numpy', 'scipy', 'sklearn', 'matplotlib'}"


def loaded_after(*arguments: str) -> set[str]:
    """The heavy packages that one run of the program loads."""
    program = (
        "import sys; from hessmap.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        f"print('LOADED', *sorted({HEAVY} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(done.stdout.rsplit("LOADED", 1)[1].split())
