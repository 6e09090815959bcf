"""The papers as one self-contained page with filters: by paper, status, kind of item, and words."""

from __future__ import annotations

from collections.abc import Sequence

from hessmap.papers import STATUSES, Paper
from hessmap.views.page import page
from hessmap.views.papers.text import study_line


def papers_page(papers: Sequence[Paper]) -> str:
    """Every item of these papers, with its status, evidence and stored verdicts."""
    items = [item for paper in papers for item in paper.items]
    kinds = sorted({item.kind for item in items})
    return page(
        "papers.html.j2",
        title="The papers, item by item",
        papers=papers,
        statuses=STATUSES,
        kinds=kinds,
        verdicts={study: study_line(study) for item in items for study in item.studies},
        num_items=len(items),
    )
