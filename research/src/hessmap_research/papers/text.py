"""The papers in the terminal: an overview, the items of one, or everything about an item.

One page about an item: statement, numbers, functions with their formulas, tests, rows of its studies, figures.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hessmap.views.page import page
from hessmap.views.tables.contents import new_table
from hessmap_research.papers.registry import STATUSES, Item, Paper, Status, stored_outcomes

_CLONE = Path(__file__).resolve().parents[4]
_DOCS = _CLONE / "research" / "docs"  # what pip installs has none
_RESEARCH = Path(__file__).resolve().parents[3]  # what pip installs has neither results nor pictures
_MOST_LINES = 15


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


_STYLES: dict[Status, str] = {
    "proved here": "bold green",
    "verified": "green",
    "sharpened": "green",
    "corrected": "cyan",
    "bounded only": "cyan",
    "conjecture": "blue",
    "not reproduced": "red",
    "inconclusive": "yellow",
    "not run": "yellow",
}

_FEW = 6  # items that are shown in full


def overview(papers: Sequence[Paper]) -> RenderableType:
    """A line for each status, a column for each paper; then what is left of each paper's main claim."""
    table = new_table()
    table.add_column("status")
    for paper in papers:
        table.add_column(f"paper {paper.number}", justify="right", overflow="fold")
    counts = [paper.counts() for paper in papers]
    for status in STATUSES:
        found = [count.get(status, 0) for count in counts]
        table.add_row(Text(status, style=_STYLES[status]), *(str(number) if number else "" for number in found))
    table.add_row("items", *(str(len(paper.items)) for paper in papers))
    missing = [sum(item.is_missing for item in paper.items) for paper in papers]
    table.add_row("with something left", *(str(number) if number else "" for number in missing))
    answers = [
        Text.assemble((f"\n{paper.number}  {paper.name}, {paper.title}.\n", "bold"), paper.answer) for paper in papers
    ]
    return Group(table, *answers)


def items_view(paper: Paper, items: Sequence[Item]) -> RenderableType:
    """The items of a paper, a line each: name, status, claim, and what is left where something is."""
    table = new_table()
    table.add_column("item", overflow="fold", max_width=22)
    table.add_column("status", no_wrap=True)
    table.add_column("claim", overflow="fold")
    for item in items:
        claim = Text(item.claim)
        if item.left:
            claim.append(f"\nleft: {item.left}", style="dim")
        table.add_row(Text(item.item), Text(item.status, style=_STYLES[item.status]), claim)
    head = Text.assemble((f"{paper.name}, {paper.title}.\n", "bold"), paper.answer, "\n")
    return Group(head, table)


def nothing_kept(paper: Paper, missing: bool, status: str | None) -> str:
    """The sentence in the place of an empty table: no item of a paper passes the filters.

    >>> from hessmap_research.papers import papers
    >>> nothing_kept(papers()[0], missing=True, status=None)
    'Nothing is left to run in paper 0.'
    """
    if status is None:
        return f"Nothing is left to run in paper {paper.number}."
    of_status = f"No item of paper {paper.number} has the status {status!r}"
    return f"{of_status} and something left to run." if missing else f"{of_status}."


def why_not_kept(item: Item, status: str | None) -> str:
    """The sentence for an item that was asked for by its name and does not pass the filters.

    >>> why_not_kept(Item(2, "Table 8", "bounds fall.", "inconclusive"), "verified")
    "Table 8 of paper 2 has the status 'inconclusive', not 'verified'."
    """
    name = f"{item.item} of paper {item.paper}"
    if status not in (None, item.status):
        return f"{name} has the status {item.status!r}, not {status!r}."
    return f"Nothing is left to run of {name}."


def named_items_view(paper: Paper, items: Sequence[Item]) -> RenderableType:
    """Everything about the items that a name stands for; a line each where they are many."""
    if len(items) > _FEW:
        return items_view(paper, items)
    first, *others = (item_view(item) for item in items)
    return Group(first, *(part for view in others for part in ("", view)))


def item_view(item: Item) -> RenderableType:
    """Everything about an item, with the stored outcome of each of its studies."""
    parts: list[RenderableType] = [Text.assemble((f"{item.item}: ", "bold"), item.claim)]
    status = Text.assemble((item.status, _STYLES[item.status]), f" ({STATUSES[item.status]})")
    parts.append(_line("status", status))
    if item.evidence:
        parts.append(_line("evidence", Text(item.evidence)))
    if item.numbers:
        parts.append(Padding(_numbers_table(item), (0, 0, 0, 2)))
    parts += [_line("study", Text.assemble((study, "bold"), f": {study_line(study)}")) for study in item.studies]
    pictures = tuple(f"research/docs/{picture}" for picture in item.figures)
    for name, values in (("function", item.functions), ("test", item.tests), ("figure", pictures)):
        parts += [_line(name, Text(value)) for value in values]
    if item.page:
        parts.append(_line("page", Text(f"research/docs/{item.page}")))
    if item.left:
        parts.append(_line("left", Text(item.left, style="yellow")))
    return Group(*parts)


def _numbers_table(item: Item) -> RenderableType:
    """The paper's numbers and ours, a line for each quantity."""
    table = new_table()
    table.add_column("quantity", overflow="fold")
    table.add_column("paper", justify="right", overflow="fold")
    table.add_column("ours", justify="right", overflow="fold")
    for row in item.numbers:
        table.add_row(*map(Text, row))
    return table


def study_line(study: str) -> str:
    """The stored outcome of a study and the data it was measured on.

    >>> study_line("no/such-study")
    'no exported results'
    """
    stored = stored_outcomes().get(study)
    if stored is None:
        return "no exported results"
    data = ", ".join(f"{name} {count:,}" for name, count in stored.data.items() if name)
    return f"{stored.sentence}{f' Cases: {data}.' if data else ''}"


def _line(name: str, text: Text) -> RenderableType:
    return Padding(Text.assemble((f"{name}: ", "dim"), text), (0, 0, 0, 2))


class _Function(NamedTuple):
    """A function with its signature and what its docstring states before the arguments, and in its notes."""

    name: str
    signature: str
    statement: str


def item_page(paper: Paper, items: Sequence[Item]) -> str:
    """Everything about the items that a name stands for, as an HTML page of its own.

    Args:
        paper: The paper of the items.
        items: The items.

    Returns:
        The page. Rows and figures are those of a clone; without one the studies' counts stand alone.
    """
    return page(
        "item.html.j2",
        "hessmap_research",
        title=f"{paper.name}: {', '.join(item.item for item in items)}",
        paper=paper,
        statuses=STATUSES,
        parts=[
            {
                "item": item,
                "functions": [_function(name) for name in item.functions],
                "outcomes": [_outcome(*cited) for cited in item.outcomes],
                "tables": [(study, _words(item.chosen(study)), _table(study, item)) for study in item.studies],
                "figures": [(_RESEARCH / "docs" / figure).as_uri() for figure in item.figures],
            }
            for item in items
        ],
    )


def _function(name: str) -> _Function:
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    text = inspect.getdoc(found) or ""
    before = text.partition("\nArgs:")[0]
    notes = text.partition("\nNotes:\n")[2].partition("\nExample:")[0]
    statement = inspect.cleandoc(before) + ("\n\n" + inspect.cleandoc(notes) if notes else "")
    return _Function(name, f"{attribute}{inspect.signature(found)}", statement)


def _outcome(study: str, claim: str, outcome: str) -> dict[str, str]:
    """A cited claim: what it states and how many cases it counts."""
    stored = stored_outcomes().get(study)
    if stored is None or claim == "cases":
        sentence = stored.sentence if stored else ""
        return {"study": study, "outcome": outcome, "sentence": sentence, "counts": ""}
    found = stored.claim(claim)
    counts = "" if found.total is None else f"{found.right:,} of {found.total:,}"
    return {"study": study, "outcome": outcome, "sentence": found.sentence, "counts": counts}


def _words(chosen: dict[str, tuple[str, ...]]) -> str:
    """Which rows are shown.

    >>> _words({"data": ("mnist", "cifar10"), "loss": ("squared",)})
    'data: mnist, cifar10; loss: squared'
    """
    return "; ".join(f"{field}: {', '.join(values)}" for field, values in chosen.items())


def _table(study: str, item: Item) -> Any:
    """A few of the stored rows that the item is about, or None."""
    from hessmap_research.runner.collection import collection_from_results
    from hessmap_research.runner.registry import find
    from hessmap_research.views.table import study_table

    known = find(study)
    if not (_RESEARCH / "results" / f"{study.replace('/', '-')}.json").is_file():
        return None
    found = collection_from_results(known, _RESEARCH / "results")
    chosen = item.chosen(study)
    rows = [row for row in found.stored.rows if all(str(row.get(name)) in values for name, values in chosen.items())]
    return study_table(replace(found, stored=replace(found.stored, rows=tuple(rows))), most_lines=_MOST_LINES)
