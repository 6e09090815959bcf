"""The site as a whole: pages are in the navigation, links inside the project lead somewhere, papers have one year."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from site_pages import PAGES, ROOT, page_name

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
ROOT_PAGES = ("changelog", "code-of-conduct", "contributing", "security")
GENERATED = ("reference/", "gallery/", *(f"project/{page}.md" for page in ROOT_PAGES))
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s]+?)(?:#([^)]*))?\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
YEARS = {
    r"Singh, Bachmann (?:&|and) Hofmann": "2021",
    r"Singh, Hofmann (?:&|and) Sch(?:oe|ö)lkopf": "2023",
    r"Wu(?: et al\.|, Zhu, Wu, Wang (?:&|and) Ge)": "2022",
    r"(?<!Jacot, Gabriel & Hongler )Jacot": "2023",
}
CITING = [path for folder in ("src", "docs", "examples") for path in sorted((ROOT / folder).rglob("*"))]


def entries(navigation: Any) -> Iterator[str]:
    """The pages of a navigation, in order."""
    if isinstance(navigation, str):
        yield navigation
    else:
        for below in navigation.values() if isinstance(navigation, dict) else navigation:
            yield from entries(below)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(entries(SITE["nav"]))
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert len(listed) == len(set(listed))
    assert written == {page for page in listed if not page.startswith(GENERATED)}


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_links_inside_the_project_lead_somewhere(path: Path) -> None:
    text = CODE.sub("", path.read_text(encoding="utf-8"))
    missing = [
        target
        for target, _ in LINK.findall(text)
        if not (path.parent / target).exists() and not leads_to_a_generated_page(path.parent / target)
    ]
    assert missing == []


def leads_to_a_generated_page(target: Path) -> bool:
    resolved = target.resolve()
    docs = ROOT / "docs"
    return resolved.is_relative_to(docs) and resolved.relative_to(docs).as_posix().startswith(GENERATED)


def test_every_paper_is_cited_with_its_year() -> None:
    wrong = [
        f"{page_name(path)}: {found[0]}"
        for path in CITING
        if path.suffix in (".py", ".md")
        for paper, year in YEARS.items()
        for found in re.finditer(rf"{paper}[ ,]*\(?(\d{{4}})", path.read_text(encoding="utf-8"))
        if found[1] != year
    ]
    assert wrong == []


def test_the_site_loads_nothing_from_elsewhere() -> None:
    assert SITE["theme"]["font"] is False
    assert "offline" in SITE["plugins"]
    assert not SITE.get("extra_javascript")
