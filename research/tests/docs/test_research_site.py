"""The research pages as a site: they are in its navigation, and links inside the project lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from site_pages import RESEARCH_PAGES, ROOT, broken_links, check_navigation, page_name

SITE = yaml.safe_load((ROOT / "research" / "mkdocs.yml").read_text(encoding="utf-8"))


def test_every_page_is_in_the_navigation_once() -> None:
    check_navigation(SITE["nav"], ROOT / "research" / "docs")


@pytest.mark.parametrize("path", RESEARCH_PAGES, ids=page_name)
def test_links_inside_the_project_lead_somewhere(path: Path) -> None:
    assert broken_links(path) == []


def test_the_site_is_a_folder_of_that_of_the_library_and_loads_nothing_from_elsewhere() -> None:
    assert SITE["INHERIT"] == "../mkdocs.yml"
    assert SITE["site_dir"] == "../site/research"
    assert "offline" in SITE["plugins"]
    assert not SITE.get("extra_javascript")
