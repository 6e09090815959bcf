"""What the search of the site must find first; the build of the site asks its search for each of them."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from site_pages import ROOT

HOOK = runpy.run_path(str(ROOT / "docs" / "hooks" / "search_words.py"))
SEARCHES = HOOK["SEARCHES"]
# Answers as the worker of the theme does, from an index of two words.
WORKER = """
addEventListener("message", ({ data }) => {
  const page = { custom: "guides/own-loss.html", cuda: "start/install.html" }[String(data.data).split(" ")[0]];
  postMessage({ data: data.type ? { items: page ? [[{ location: page + "#part" }]] : [] } : undefined });
});
"""


def test_the_page_of_every_search_exists_and_no_search_has_two() -> None:
    assert [page for page in SEARCHES if not (ROOT / "docs" / page).is_file()] == []
    words = [word for searches in SEARCHES.values() for word in searches]
    assert len(words) == len(set(words))
    assert "custom loss" in SEARCHES["guides/own-loss.md"]
    assert "cuda" in SEARCHES["guides/large-models.md"]


def test_searches_are_the_tags_of_their_page() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="guides/own-loss.md"), meta={})
    assert HOOK["on_page_markdown"]("text", page) == "text"
    assert page.meta == {"tags": list(SEARCHES["guides/own-loss.md"])}


def test_the_build_of_the_site_asks_its_search() -> None:
    assert "docs/hooks/search_words.py" in yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["hooks"]


@pytest.mark.skipif(shutil.which("node") is None, reason="the search runs in node")
def test_a_page_that_does_not_come_first_is_named(tmp_path: Path) -> None:
    for name, text in {
        "assets/javascripts/workers/search.0.min.js": WORKER,
        "search/search_index.js": "var __index = {}",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    wrong = HOOK["misplaced"](tmp_path, "node")
    assert "cuda: start/install.html, not guides/large-models.html" in wrong
    assert not any(line.startswith("custom loss:") for line in wrong)
