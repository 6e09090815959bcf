"""``hessmap serve`` as a command: light help, and odd command lines that end in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_lines import assert_one_sentence, enter, loaded_after, odd_folder

LINES = """
serve word
serve ''
serve --initial mine:net
serve mine:net --initial word
serve --port -1
serve --port 65536
serve --port x
serve --no-such-option
serve one:two three:four
"""


def test_help_loads_nothing_heavy() -> None:
    assert loaded_after("serve", "--help") == set()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return odd_folder(tmp_path_factory.mktemp("odd"), {})


@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_odd_line_of_serve_ends_in_one_sentence(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(folder, monkeypatch)
    assert_one_sentence(line, folder)
