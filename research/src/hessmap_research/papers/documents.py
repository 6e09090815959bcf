"""The parts of ``research/docs/`` that come from the registry: how a paper's page begins, and its table of items.

``make papers`` (``python -m hessmap_research.papers.documents``) writes them between two comments, and brings the
stored outcomes of the studies up to date. A test compares the pages with the registry.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hessmap_research.papers.registry import Item, Paper, outcomes_text, papers, stored_outcomes

BEGIN, END = "<!-- from the registry: make papers -->", "<!-- end of what comes from the registry -->"


def beginning(paper: Paper) -> str:
    """The picture of the main claim, the answer in one sentence, and the items with their statuses."""
    counts = ", ".join(f"{number} {status}" for status, number in paper.counts().items())
    lines = [
        BEGIN,
        "",
        f"![{paper.title}: the main claim]({paper.picture})",
        "",
        f"**{paper.answer}**",
        "",
        f"{len(paper.items)} items: {counts}. `hessmap papers {paper.number}` lists them, "
        f'`hessmap papers {paper.number} "{paper.items[0].item}"` says everything about one.',
        "",
        "| item | claim | status | evidence |",
        "| --- | --- | --- | --- |",
        *(_row(item, paper.page) for item in paper.items),
        "",
        END,
    ]
    return "\n".join(lines)


def _row(item: Item, page: str) -> str:
    link = item.page.removeprefix(page) if item.page.startswith(f"{page}#") else item.page
    name = f"[{item.item}]({link})" if link and link != page else item.item
    studies = item.studies if item.status != "not run" else ()
    data = ", ".join(dict.fromkeys(name for study in studies for name in _data(study)))
    stored = f" Data: {data}." if data else ""
    left = f" Not run yet: {item.left}." if item.left else ""
    parts = f"{_numbers(item)}{stored}{left}"
    evidence = f"{item.evidence}{'.' if parts and item.evidence else ''}{parts}".strip()
    return "| " + " | ".join(_cell(text) for text in (name, item.claim, item.status, evidence)) + " |"


def _numbers(item: Item) -> str:
    """Ours, and the paper's where it prints one."""
    found = [f"{name} {ours}{f' (paper: {theirs})' if theirs else ''}" for name, theirs, ours in item.numbers]
    return f" Ours: {'; '.join(found)}." if found else ""


def _data(study: str) -> tuple[str, ...]:
    stored = stored_outcomes().get(study)
    return tuple(name for name in stored.data if name) if stored else ()


def _cell(text: str) -> str:
    """Text that a Markdown table takes as it is.

    >>> _cell("kl(q || p)")
    'kl(q \\\\|\\\\| p)'
    """
    return text.replace("|", "\\|").strip()


def with_beginning(text: str, paper: Paper) -> str:
    """A page with what comes from the registry replaced."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{beginning(paper)}{after}"


def main(docs: Path, results: Path) -> None:
    """Write the stored outcomes and the pages of all papers."""
    target = Path(__file__).with_name("verdicts.json")
    target.write_text(outcomes_text(results), encoding="utf-8")
    stored_outcomes.cache_clear()
    for paper in papers():
        page = docs / paper.page
        page.write_text(with_beginning(page.read_text(encoding="utf-8"), paper), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
