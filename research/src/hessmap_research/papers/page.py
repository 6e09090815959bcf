"""The papers as one self-contained page with filters: by paper, status, kind of item, and words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hessmap.views.page import page
from hessmap_research.papers.registry import STATUSES, Paper
from hessmap_research.papers.text import study_line

_CLONE = Path(__file__).resolve().parents[4]
_DOCS = _CLONE / "research" / "docs"  # what pip installs has none


def papers_page(papers: Sequence[Paper], folder: Path | None = None) -> str:
    """Every item of these papers, with its status, evidence and stored outcomes.

    ``folder`` is where the page will be written: inside a clone it links to the pages of ``research/docs/``, elsewhere
    it names them.
    """
    items = [item for paper in papers for item in paper.items]
    kinds = sorted({item.kind for item in items})
    return page(
        "papers.html.j2",
        "hessmap_research",
        title="The papers, item by item",
        papers=papers,
        statuses=STATUSES,
        kinds=kinds,
        outcomes={study: study_line(study) for item in items for study in item.studies},
        num_items=len(items),
        docs=_path_to_docs(folder),
    )


def _path_to_docs(folder: Path | None) -> str:
    """From a folder of the clone to its ``research/docs/``, as a link takes it; empty for any other folder."""
    start = None if folder is None else folder.resolve()
    if start is None or not start.is_relative_to(_CLONE) or not (_DOCS / "index.md").is_file():
        return ""
    return Path(os.path.relpath(_DOCS, start)).as_posix()
