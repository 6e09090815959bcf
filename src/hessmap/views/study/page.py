"""A self-contained HTML page for a study: verdict, figures, table, and how to reproduce it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hessmap.runs.collection import Collection, shared_error
from hessmap.runs.commands import command_line
from hessmap.runs.encoding import case_key
from hessmap.runs.verdict import Judgement, Verdict
from hessmap.views.page import page
from hessmap.views.study.figure import inline_drawings
from hessmap.views.study.table import study_table

_MAX_LINES = 500


def study_page(collection: Collection, address: str) -> str:
    """The page of a study; ``address`` is what the commands on it call the study."""
    verdict, table = collection.verdict, study_table(collection, _MAX_LINES)
    failures = collection.stored.failures
    return page(
        "study.html.j2",
        title=collection.study.question,
        study=collection.study,
        verdict=verdict,
        answer=collection.study.answer(verdict),
        findings=sorted(verdict.findings, key=lambda finding: finding.holds is not False),
        verdict_class=_verdict_class(verdict),
        figures=inline_drawings(collection),
        judgements=(
            ("Cases that disagree", _lines([one for one in verdict.disagreements if not one.is_conjecture])),
            ("Counterexamples of conjectures", _lines([one for one in verdict.disagreements if one.is_conjecture])),
            ("Cases that cannot be decided", _lines(verdict.undecidable)),
        ),
        failures=[{"case": failure.key, "error": shared_error(failure)} for failure in failures[:_MAX_LINES]],
        table=table,
        num_hidden=table.num_left_out,
        commands=_commands(collection, address),
        source=collection.source,
        provenances=[_made_with(content) for content in collection.stored.provenances],
        notes=collection.notes,
    )


def _verdict_class(verdict: Verdict) -> str:
    if verdict.fails:
        return "fails"
    return "holds" if verdict.holds else "open"


def _lines(judgements: Sequence[Judgement]) -> list[dict[str, str]]:
    return [
        {
            "case": case_key(judgement.case),
            "name": judgement.measured_name,
            "measured": f"{judgement.measured:.6g}",
            "predicted": f"{judgement.predicted:.6g}",
            "gap": "" if judgement.gap is None else f"{judgement.gap:.3g}",
        }
        for judgement in judgements[:_MAX_LINES]
    ]


def _commands(collection: Collection, address: str) -> list[str]:
    names = dict.fromkeys(row.case["data"] for row in collection.stored.rows if collection.study.data)
    runs = [
        command_line("study", "run", *([f"--data={name}"] if name else []), values=[address]) for name in names or [""]
    ]
    return ["pip install hessmap", *runs, command_line("study", "show", "--html=study.html", values=[address])]


def _made_with(provenance: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(provenance["versions"].items()))
