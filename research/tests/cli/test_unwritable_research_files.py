"""Files of studies and papers that cannot be written are refused before any work, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_lines import PLACES, assert_not_writable, enter, unwritable_folder

COMMANDS = {
    "study run --store": "study run fcn/simulate --engine inline --store {}",
    "study show --figure": "study show fcn/simulate --figure {}.png",
    "study show --html": "study show fcn/simulate --html {}",
    "study export --results": "study export fcn/simulate --results {}",
    "papers --html": "papers --html {}",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    enter(tmp_path, monkeypatch)
    return unwritable_folder(tmp_path)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[:20])
@pytest.mark.parametrize("command", COMMANDS)
def test_file_where_none_can_be_made_is_refused_before_any_work(command: str, place: str, folder: Path) -> None:
    assert_not_writable(COMMANDS[command].format(place), folder)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "study export --results"])
@pytest.mark.parametrize("place", ["a_folder", "read_only"])
def test_folder_or_protected_file_is_refused_before_any_work(command: str, place: str, folder: Path) -> None:
    assert_not_writable(COMMANDS[command].format(place), folder)


def test_results_file_that_is_a_folder_is_refused(folder: Path) -> None:
    (folder / "out" / "fcn-simulate.json").mkdir(parents=True)
    assert_not_writable(COMMANDS["study export --results"].format("out"), folder)
