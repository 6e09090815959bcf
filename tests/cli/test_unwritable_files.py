"""Files that cannot be written are refused before any work, by every command, and nothing is left behind."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hessmap.cli import app
from hessmap.cli.options import require_writable
from hessmap.errors import InvalidInput

# The model, the data and the study say when they are asked for: that is the work.
WORKING = """
from pathlib import Path
def net(): Path("worked").touch(); raise RuntimeError("work was done")
data = start = net
class Study:
    name = "unwritable/study"
STUDY = Study()
"""
COMMANDS = {
    "map --store": "map working:net --data working:data --store {}",
    "map --output": "map working:net --data working:data --output {}",
    "certify --save": "certify working:net --data working:data --save {}",
    "certify --checkpoint": "certify working:net --initial working:start --data working:data --checkpoint {}",
    "track --store": "track checkpoints working:net a_file --data working:data --store {}",
    "track --figure": "track show run --figure {}.png",
    "track --html": "track show run --html {}",
    "function --figure": "function working:net --data working:data --figure {}.png",
    "learning --figure": "learning estimate working:net --data working:data --figure {}.png",
    "study run --store": "study run fcn/simulate --engine inline --store {}",
    "study show --figure": "study show fcn/simulate --figure {}.png",
    "study show --html": "study show fcn/simulate --html {}",
    "study export --results": "study export fcn/simulate --results {}",
    "map show --html": "map show run --html {}",
    "map compare --figure": "map compare one two --figure {}.png",
    "papers --html": "papers --html {}",
}
PLACES = ("/proc/none/target", "a_file/target", "protected/target", "loop/target", "x" * 300)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HESSMAP_STORE", "HESSMAP_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "working.py").write_text(WORKING)
    (tmp_path / "a_file").write_text("text")
    (tmp_path / "a_folder").mkdir()
    (tmp_path / "protected").mkdir()
    (tmp_path / "protected").chmod(0o555)
    (tmp_path / "loop").symlink_to("loop")
    for name in ("read_only", "read_only.png"):
        (tmp_path / name).write_text("mine")
        (tmp_path / name).chmod(0o444)
    (tmp_path / "a_folder.png").mkdir()
    return tmp_path


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every path with the time of its last change, and its bytes."""
    found = {}
    for path in folder.rglob("*"):
        if "__pycache__" not in path.parts:
            is_file = path.is_file() and not path.is_symlink()
            found[str(path)] = (path.lstat().st_mtime_ns, path.read_bytes() if is_file else b"")
    return found


def refused(line: str, folder: Path) -> None:
    before = contents(folder)
    done = CliRunner().invoke(app, shlex.split(line))
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("hessmap: the file must be writable; "), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert {name: value[1] for name, value in contents(folder).items()} == {
        name: value[1] for name, value in before.items()
    }


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[:20])
@pytest.mark.parametrize("command", COMMANDS)
def test_file_where_none_can_be_made_is_refused_before_any_work(command: str, place: str, folder: Path) -> None:
    refused(COMMANDS[command].format(place), folder)


@pytest.mark.parametrize(
    "command", [name for name in COMMANDS if name not in ("map --output", "study export --results")]
)
@pytest.mark.parametrize("place", ["a_folder", "read_only"])
def test_folder_or_protected_file_is_refused_before_any_work(command: str, place: str, folder: Path) -> None:
    refused(COMMANDS[command].format(place), folder)


@pytest.mark.parametrize("name", ["map.json", "density.svg", "spectrum.png"])
def test_folder_of_a_map_with_a_file_that_cannot_be_written_is_refused(name: str, folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / name).mkdir()
    refused(COMMANDS["map --output"].format("out"), folder)


def test_results_file_that_is_a_folder_is_refused(folder: Path) -> None:
    (folder / "out" / "fcn-simulate.json").mkdir(parents=True)
    refused(COMMANDS["study export --results"].format("out"), folder)


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("name", ["new.txt", "deep/er/new.txt", "a_file", "a_folder/new", "link", "dangling"])
def test_trial_changes_nothing(name: str, replaces: bool, folder: Path) -> None:
    (folder / "link").symlink_to("a_file")
    (folder / "dangling").symlink_to("nowhere/target")
    before = contents(folder)

    require_writable(Path(name), replaces=replaces)
    require_writable(folder / name, replaces=replaces)

    after = contents(folder)
    assert after.keys() == before.keys()
    for path in ("a_file", "read_only", "working.py"):
        assert after[str(folder / path)] == before[str(folder / path)]


def test_writable_file_in_a_protected_folder_may_be_written_but_not_replaced(folder: Path) -> None:
    (folder / "protected").chmod(0o755)
    (folder / "protected" / "page.html").write_text("old")
    (folder / "protected").chmod(0o555)

    require_writable(Path("protected/page.html"))

    with pytest.raises(InvalidInput, match="permission denied"):
        require_writable(Path("protected/page.html"), replaces=True)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nul\0l", "null"),
        ("loop", "."),
        (os.devnull, "not a regular file"),
        ("a_folder", "it is a folder"),
        ("", "it is a folder"),
    ],
)
def test_odd_paths_are_refused_with_the_reason(path: str, words: str, folder: Path) -> None:
    with pytest.raises(InvalidInput, match=f"must be writable; .* is not \\(.*{words}"):
        require_writable(Path(path))
