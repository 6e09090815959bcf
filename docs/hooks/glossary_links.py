"""The first use of every term of the glossary on a page is a link to it.

A term is a heading of the third level in glossary.md; ``{data-also="..."}`` behind it lists other forms, separated by
commas. Forms in backticks are looked for in code, all others in text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

HEADING = re.compile(r"^### (.+?)(?: \{ *#([\w-]+)(?: data-also=\"([^\"]*)\")? *\})?$", re.MULTILINE)
GLOSSARY = Path(__file__).parents[1] / "glossary.md"
TAG = re.compile(r"(<[^>]+>)")
LEFT_ALONE = {"a", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "script", "style", "math", "summary", "label", "svg"}
WITHOUT = ("glossary.md", "reference/")  # the glossary itself, and what is generated from docstrings


def on_page_markdown(text: str, page: Page, **_: Any) -> str:
    """The glossary without the lists of other forms: code among them would make headings of them, without an anchor."""
    return with_anchors_alone(text) if page.file.src_uri == "glossary.md" else text


def with_anchors_alone(text: str) -> str:
    return HEADING.sub(lambda found: f"### {found[1]} {{ #{found[2]} }}" if found[2] else found[0], text)


def on_page_content(text: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    if page.file.src_uri.startswith(WITHOUT):
        return text
    glossary = config.extra.get("glossary", "glossary.html")  # research/mkdocs.yml: that of the library
    return linked(text, terms(), posixpath.relpath(glossary, posixpath.dirname(page.url) or "."))


def terms() -> dict[str, str]:
    """Every form of every term in small letters, code in backticks as it is, to the anchor of its heading."""
    found = {}
    for name, anchor, also in HEADING.findall(GLOSSARY.read_text(encoding="utf-8")):
        anchor = anchor or re.sub(r"[^\w]+", "-", name.lower()).strip("-")
        for form in (name, *filter(None, (one.strip() for one in also.split(",")))):
            found[form if form.startswith("`") else form.lower()] = anchor
    return found


def linked(text: str, forms: dict[str, str], glossary: str) -> str:
    """The page with a link at the first use of each term, outside of headings, links and blocks of code."""
    words = sorted((form for form in forms if not form.startswith("`")), key=len, reverse=True)
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, words))})\b", re.IGNORECASE)
    done: set[str] = set()
    opened: list[str] = []

    def link(shown: str, form: str) -> str:
        anchor = forms[form]
        if anchor in done:
            return shown
        done.add(anchor)
        return f'<a class="term" href="{glossary}#{anchor}">{shown}</a>'

    pieces = TAG.split(text)
    for place, piece in enumerate(pieces):
        if piece.startswith("<"):
            name = piece.strip("</> ").split()[0].lower() if piece.strip("</> ") else ""
            if piece.startswith("</"):
                if name in opened:
                    del opened[len(opened) - 1 - opened[::-1].index(name) :]
            elif not piece.endswith("/>"):
                opened.append(name)
        elif not LEFT_ALONE & set(opened):
            if "code" in opened:
                pieces[place] = link(piece, f"`{piece}`") if f"`{piece}`" in forms else piece
            else:
                pieces[place] = pattern.sub(lambda found: link(found[0], found[0].lower()), piece)
    return "".join(pieces)
