"""Links between the site of the library and that of the research pages, which is built into its folder ``research``.

A page names the file, ``../../research/docs/layers.md``, so that the link also leads somewhere in the repository. Here
it becomes the address of the page that is built from it. Both configurations use this hook; the second build, that of
the research pages, refuses what leads nowhere, also what hooks have written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
FOLDERS = {ROOT / "docs": Path(), ROOT / "research" / "docs": Path("research")}  # sources: where their site lies
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\[\]]*)\]\((?P<path>[^()\s#:]+)(?P<anchor>#[^()\s]*)?\)")
ADDRESS = re.compile(r'(?:href|src)="?([^">\s#?:]+)(?![^">\s#?]*:)(?:\?[^">\s#]*)?(?:#([^">\s]*))?[">\s]')

LOADED = re.compile(
    r'<(?:script|img|iframe|source)\b[^>]*\bsrc="?(?:https?:)?//[^>]*>'
    r'|<link\b(?=[^>]*\brel="?(?:stylesheet|preload|preconnect|icon))[^>]*\bhref="?(?:https?:)?//[^>]*>'
)


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    return with_addresses(text, Path(config.docs_dir), Path(page.file.src_uri).parent)


def with_addresses(text: str, here: Path, folder: Path) -> str:
    """The text of a page in a folder of the pages ``here`` with the addresses of what it links to on the other site."""

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(here / folder / found["path"]))
        other = next((docs for docs in FOLDERS if docs != here and target.is_relative_to(docs)), None)
        if other is None:
            return found[0]
        built = FOLDERS[other] / target.relative_to(other)
        built = built.with_suffix(".html") if built.suffix == ".md" else built
        address = Path(os.path.relpath(built, FOLDERS[here] / folder)).as_posix()
        if found["image"]:
            return f'<img alt="{found["text"]}" src="{address}">'
        return f'<a href="{address}{found["anchor"] or ""}">{found["text"]}</a>'

    return LINK.sub(link, text)


def on_post_build(config: MkDocsConfig) -> None:
    if FOLDERS[Path(config.docs_dir)].parts:
        from mkdocs.exceptions import PluginError

        site = Path(config.site_dir).parent
        if wrong := sorted(set(broken_links(site))):
            raise PluginError("links lead nowhere:\n" + "\n".join(wrong))
        if wrong := sorted(set(loaded_from_elsewhere(site))):
            raise PluginError("pages load from other hosts:\n" + "\n".join(wrong))


def broken_links(site: Path) -> Iterator[str]:
    """Every relative link of the pages of a folder that has no target in it."""
    texts = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    for path, text in texts.items():
        for address, anchor in ADDRESS.findall(text):
            target = Path(os.path.normpath(path.parent / address))
            if address.startswith("/"):  # of the page for addresses that do not exist
                continue
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (anchor and f'id="{anchor}"' not in texts.get(target, "")):
                yield f"{path.relative_to(site)}: {address}{f'#{anchor}' if anchor else ''}"


def loaded_from_elsewhere(site: Path) -> Iterator[str]:
    """Every script, style sheet, picture or frame that a page of a folder loads from another host."""
    for path in site.rglob("*.html"):
        for tag in LOADED.findall(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)}: {tag}"
