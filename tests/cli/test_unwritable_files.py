"""Files that cannot be written are refused before any work, by every command, and nothing is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from command_lines import PLACES, assert_not_writable, contents, enter, unwritable_folder
from hessmap.cli.options import require_writable
from hessmap.errors import InvalidInput

# The model and the data say when they are asked for: that is the work.
WORKING = """
from pathlib import Path
def net(): Path("worked").touch(); raise RuntimeError("work was done")
data = start = net
"""
COMMANDS = {
    "map --store": "map working:net --data working:data --store {}",
    "map --output": "map working:net --data working:data --output {}",
    "certify --save": "certify working:net --data working:data --save {}",
    "certify --checkpoint": "certify working:net --initial working:start --data working:data --checkpoint {}",
    "tracks --store": "tracks checkpoints working:net a_file --data working:data --store {}",
    "tracks --figure": "tracks show run --figure {}.png",
    "tracks --html": "tracks show run --html {}",
    "function --figure": "function working:net --data working:data --figure {}.png",
    "learning --figure": "learning estimate working:net --data working:data --figure {}.png",
    "maps show --html": "maps show run --html {}",
    "maps compare --figure": "maps compare one two --figure {}.png",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "working.py").write_text(WORKING)
    enter(tmp_path, monkeypatch)
    return unwritable_folder(tmp_path)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[:20])
@pytest.mark.parametrize("command", COMMANDS)
def test_file_where_none_can_be_made_is_refused_before_any_work(command: str, place: str, folder: Path) -> None:
    assert_not_writable(COMMANDS[command].format(place), folder)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "map --output"])
@pytest.mark.parametrize("place", ["a_folder", "read_only"])
def test_folder_or_protected_file_is_refused_before_any_work(command: str, place: str, folder: Path) -> None:
    assert_not_writable(COMMANDS[command].format(place), folder)


@pytest.mark.parametrize("name", ["map.json", "density.svg", "spectrum.png"])
def test_folder_of_a_map_with_a_file_that_cannot_be_written_is_refused(name: str, folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / name).mkdir()
    assert_not_writable(COMMANDS["map --output"].format("out"), folder)


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
