"""The site as a whole: pages are in the navigation, links inside the project lead somewhere, papers have one year."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from site_pages import PAGES, ROOT, broken_links, check_navigation, page_name

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
YEARS = {
    r"Singh, Bachmann (?:&|and) Hofmann": "2021",
    r"Singh, Hofmann (?:&|and) Sch(?:oe|ö)lkopf": "2023",
    r"Wu(?: et al\.|, Zhu, Wu, Wang (?:&|and) Ge)": "2022",
    r"(?<!Jacot, Gabriel & Hongler )Jacot": "2023",
}
CITING = [
    path
    for folder in ("src", "docs", "examples", "explorer/src", "research/src", "research/docs")
    for path in sorted((ROOT / folder).rglob("*"))
]


def test_every_page_is_in_the_navigation_once() -> None:
    check_navigation(SITE["nav"], ROOT / "docs")


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_links_inside_the_project_lead_somewhere(path: Path) -> None:
    assert broken_links(path) == []


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
    assert SITE["extra"]["polyfills"] == ["assets/iframe-worker.js"]  # else "offline" adds one of another host


WORDS_OF_SITE, WORDS_OF_PAGE = 20_000, 1_500
REFERENCE = {"docs/command-line.md", "docs/glossary.md"}  # looked up, not read
# Not prose: code, comments, tables that commands write, targets of links.
NOT_PROSE = re.compile(
    r"```.*?```|<!-- (?:peers: start|table: \w+|models|capabilities) -->.*?<!-- (?:\w+: )?end|<!--.*?-->|\]\([^)]*\)",
    re.DOTALL,
)


def num_words(path: Path) -> int:
    return len(re.findall(r"[A-Za-z][\w'-]*", NOT_PROSE.sub(" ", path.read_text(encoding="utf-8"))))


def test_the_pages_for_users_are_short() -> None:
    words = {page_name(path): num_words(path) for path in (ROOT / "docs").rglob("*.md")}
    pages = {page: count for page, count in words.items() if page not in REFERENCE}
    assert sum(pages.values()) <= WORDS_OF_SITE
    assert {page: count for page, count in pages.items() if count > WORDS_OF_PAGE} == {}
