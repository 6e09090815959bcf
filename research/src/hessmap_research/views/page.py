"""A self-contained HTML page for a study: outcome, figures, table, and how to reproduce it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hessmap.records.commands import command_line
from hessmap.views.page import page
from hessmap_research.runner.claims import CaseOutcome, StudyOutcome
from hessmap_research.runner.collection import Collection, shared_error
from hessmap_research.runner.encoding import case_key
from hessmap_research.views.figure import inline_drawings
from hessmap_research.views.panels import panels_note
from hessmap_research.views.table import study_table

_MAX_LINES = 500


def study_page(collection: Collection, address: str) -> str:
    """The page of a study; ``address`` is what the commands on it call the study."""
    outcome, table = collection.outcome, study_table(collection, _MAX_LINES)
    failures = collection.stored.failures
    return page(
        "study.html.j2",
        "hessmap_research",
        title=collection.study.question,
        study=collection.study,
        outcome=outcome,
        answer=collection.study.answer(outcome),
        claims=outcome.shown(collection.study.families),
        every_claim=outcome.shown({}),
        outcome_class=_outcome_class(outcome),
        figures=inline_drawings(collection),
        checked=(
            ("Cases that disagree", _lines([one for one in outcome.disagreements if not one.is_conjecture])),
            ("Counterexamples of conjectures", _lines([one for one in outcome.disagreements if one.is_conjecture])),
            ("Cases that cannot be decided", _lines(outcome.undecidable)),
        ),
        failures=[{"case": failure.key, "error": shared_error(failure)} for failure in failures[:_MAX_LINES]],
        table=table,
        num_hidden=table.num_left_out,
        commands=_commands(collection, address),
        source=collection.source,
        provenances=[_made_with(content) for content in collection.stored.provenances],
        notes=(*collection.notes, *panels_note(collection)),
    )


def _outcome_class(outcome: StudyOutcome) -> str:
    if outcome.fails:
        return "fails"
    return "holds" if outcome.holds else "open"


def _lines(checked: Sequence[CaseOutcome]) -> list[dict[str, str]]:
    return [
        {
            "case": case_key(one.case),
            "name": one.measured_name,
            "measured": f"{one.measured:.6g}",
            "predicted": f"{one.predicted:.6g}",
            "gap": "" if one.gap is None else f"{one.gap:.3g}",
        }
        for one in checked[:_MAX_LINES]
    ]


def _commands(collection: Collection, address: str) -> list[str]:
    names = dict.fromkeys(row.case["data"] for row in collection.stored.rows if collection.study.data)
    runs = [
        command_line("study", "run", *([f"--data={name}"] if name else []), values=[address]) for name in names or [""]
    ]
    return ["pip install hessmap", *runs, command_line("study", "show", "--html=study.html", values=[address])]


def _made_with(provenance: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(provenance["versions"].items()))
