"""Every block of code of the site runs: Python from top to bottom of a page, commands as far as they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from site_pages import (
    LANGUAGES,
    PAGES,
    blocks,
    commands,
    page_name,
    run_page,
    understood,
    with_python,
    with_slow_python,
)


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_every_block_says_its_language(path: Path) -> None:
    assert [block.place for block in blocks(path) if block.language not in LANGUAGES] == []


@pytest.mark.parametrize("path", with_python(PAGES), ids=page_name)
def test_the_code_of_the_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page([block for block in blocks(path) if not block.is_slow], tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("path", with_slow_python(PAGES), ids=page_name)
def test_the_slow_code_of_the_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(list(blocks(path)), tmp_path, monkeypatch)


@pytest.mark.parametrize("command", commands(PAGES))
def test_the_program_understands_the_command(command: str) -> None:
    understood(command)


def test_a_command_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        understood("hessmap predict 64-10 --input-rnk 3")
