"""Every block of code of the research pages runs, as those of the pages of the library do."""

from __future__ import annotations

from pathlib import Path

import pytest

from site_pages import (
    LANGUAGES,
    RESEARCH_PAGES,
    blocks,
    commands,
    page_name,
    run_page,
    understood,
    with_python,
    with_slow_python,
)


@pytest.mark.parametrize("path", RESEARCH_PAGES, ids=page_name)
def test_every_block_says_its_language(path: Path) -> None:
    assert [block.place for block in blocks(path) if block.language not in LANGUAGES] == []


@pytest.mark.parametrize("path", with_python(RESEARCH_PAGES), ids=page_name)
def test_the_code_of_the_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page([block for block in blocks(path) if not block.is_slow], tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("path", with_slow_python(RESEARCH_PAGES), ids=page_name)
def test_the_slow_code_of_the_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(list(blocks(path)), tmp_path, monkeypatch)


@pytest.mark.parametrize("command", commands(RESEARCH_PAGES))
def test_the_program_understands_the_command(command: str) -> None:
    understood(command)
