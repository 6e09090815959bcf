"""Links between the pages of the library and the research pages, which are two sites in one folder."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from site_pages import ROOT

HOOK = runpy.run_path(str(ROOT / "docs" / "hooks" / "two_sites.py"))
LIBRARY, RESEARCH = ROOT / "docs", ROOT / "research" / "docs"


@pytest.mark.parametrize(
    ("docs", "folder", "written", "built"),
    [
        (LIBRARY, ".", "[a](../research/docs/index.md)", '<a href="research/index.html">a</a>'),
        (LIBRARY, "guides", "[`b`](../../research/docs/layers.md#c)", '<a href="../research/layers.html#c">`b`</a>'),
        (
            LIBRARY,
            "concepts",
            "![d](../../research/docs/pictures/e.svg)",
            '<img alt="d" src="../research/pictures/e.svg">',
        ),
        (RESEARCH, ".", "[a](../../docs/index.md)", '<a href="../index.html">a</a>'),
        (RESEARCH, ".", "x ([a](../../docs/guides/b.md#c)).", 'x (<a href="../guides/b.html#c">a</a>).'),
    ],
)
def test_a_link_to_a_file_of_the_other_site_becomes_its_address(
    docs: Path, folder: str, written: str, built: str
) -> None:
    assert HOOK["with_addresses"](written, docs, Path(folder)) == built


@pytest.mark.parametrize(
    "written",
    ["[a](index.md)", "[a](../glossary.md#b)", "[a](https://example.org/research/docs/index.md)", "[a](#b)", "a[0](x)"],
)
def test_other_links_stay_as_they_are(written: str) -> None:
    assert HOOK["with_addresses"](written, LIBRARY, Path("guides")) == written


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    inner = tmp_path / "research"
    inner.mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="research/a.html"></a><a href="research/a.html#there"></a><a href="missing.html"></a>'
        '<a href="research/b.html"></a><a href="research/a.html#nowhere"></a><img src="research/c.png">'
    )
    (inner / "a.html").write_text(
        '<h2 id="there"></h2><a href="../index.html"></a><a href=../gone.css></a><a href="b.html">'
    )
    (inner / "index.html").write_text(
        '<a href=".."></a><a href="."></a><a href="https://a.org/b"></a><a href="mailto:a@b"></a><a href="#c"></a>'
        '<a href="/d"></a><a href="a.html?q=1#there"></a>'
    )
    assert sorted(HOOK["broken_links"](tmp_path)) == [
        "index.html: missing.html",
        "index.html: research/a.html#nowhere",
        "index.html: research/b.html",
        "index.html: research/c.png",
        "research/a.html: ../gone.css",
        "research/a.html: b.html",
    ]


@pytest.mark.parametrize(
    ("tag", "is_elsewhere"),
    [
        ('<script src="https://example.org/shim"></script>', True),
        ("<script src=//example.org/shim></script>", True),
        ('<link rel="stylesheet" href="https://example.org/a.css">', True),
        ('<img alt="x" src="http://example.org/a.png">', True),
        ('<script src="assets/iframe-worker.js"></script>', False),
        ('<link rel="stylesheet" href="../assets/site.css">', False),
        ('<a href="https://example.org">elsewhere</a>', False),
    ],
)
def test_what_a_page_loads_from_another_host_is_found(tmp_path: Path, tag: str, is_elsewhere: bool) -> None:
    (tmp_path / "a.html").write_text(f"<html>{tag}</html>", encoding="utf-8")
    assert [line.split(":")[0] for line in HOOK["loaded_from_elsewhere"](tmp_path)] == ["a.html"] * is_elsewhere
