"""One page about an item: statement, numbers, functions with their formulas, tests, rows of its studies, figures."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hessmap.views.page import page
from hessmap_research.papers.registry import STATUSES, Item, Paper, stored_outcomes

_RESEARCH = Path(__file__).resolve().parents[3]  # what pip installs has neither results nor pictures
_MOST_LINES = 15


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
                "tables": [(study, _table(study)) for study in item.studies],
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


def _table(study: str) -> Any:
    """A few rows of the stored results, or None."""
    from hessmap_research.runner.collection import collection_from_results
    from hessmap_research.runner.registry import find
    from hessmap_research.views.table import study_table

    known = find(study)
    if not (_RESEARCH / "results" / f"{study.replace('/', '-')}.json").is_file():
        return None
    return study_table(collection_from_results(known, _RESEARCH / "results"), most_lines=_MOST_LINES)
