"""Studies in the terminal: the listing, a description, the summary of a run, and the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from hessmap.records import command_line
from hessmap.views.page import page
from hessmap.views.tables.contents import FittingTable, new_table
from hessmap_research.runner.claims import MOST_CLAIMS, CaseOutcome, Claim, StudyOutcome
from hessmap_research.runner.collection import Collection, shared_error
from hessmap_research.runner.description import StudyDescription
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.registry import Listing
from hessmap_research.runner.run import RunSummary
from hessmap_research.runner.store import Summary
from hessmap_research.views.panels import panels_note
from hessmap_research.views.table import study_table, words

_MAX_LINES = 500


def study_page(collection: Collection, address: str) -> str:
    """The page of a study; ``address`` is what the commands on it call the study."""
    from hessmap_research.views.figure import inline_drawings

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


_MAX_CASES = 20


def listing_view(listed: Sequence[Listing], summaries: Sequence[Summary]) -> RenderableType:
    """One line a study, with what the store holds of its newest version; then stored studies of the user's own."""
    newest = {summary.study: summary for summary in summaries}  # sorted by version: the last one stays
    table = _table("study", "question", numbers=("stored", "failed"))
    for study in listed:
        table.add_row(study.name, Text(study.question), *_counts(newest.pop(study.name, None)))
    for name, summary in newest.items():
        table.add_row(Text(name), Text("not part of hessmap", style="dim"), *_counts(summary))
    return table


def description_view(description: StudyDescription) -> RenderableType:
    table = _table("", "")
    table.show_header = False
    for label, value in _description_lines(description):
        table.add_row(Text(label), Text(value))
    return Group(Text(description.question, style="bold"), table)


def summary_view(summary: RunSummary) -> RenderableType:
    """What a run did; each failed case with its error and the command that repeats it alone."""
    counts = {"done": summary.num_done, "failed": summary.num_failed, "stored before": summary.num_skipped}
    done = ", ".join(f"{number:,} {what}" for what, number in counts.items() if number) or "nothing to do"
    parts: list[RenderableType] = [Text(f"{summary.study}: {done} in {summary.seconds:.1f} s.", style="bold")]
    if summary.num_left:
        parts.append(Text(f"{summary.num_left:,} cases are left; the same command continues.", style="yellow"))
    for failure in summary.failures:
        parts.append(Text(failure.error.split("\n")[0], style="red"))
        parts.append(Text(f"  {failure.command}", overflow="fold"))
    return Group(*parts, *(Text(note, style="yellow") for note in summary.notes))


def collection_view(
    collection: Collection, num_lines: int, written: Sequence[Path], num_claims: int = MOST_CLAIMS
) -> RenderableType:
    """The question, the table, the outcomes, and where the figures are; 0 lines or claims stand for all of them."""
    shown = study_table(collection, num_lines or None)
    hidden = shown.num_left_out
    lines = f"{hidden:,} more line{'s' if hidden > 1 else ''} between these"
    more = [Text(f"{lines}; --rows 0 prints all.", style="dim")] if hidden else []
    return Group(
        Text(collection.study.question, style="bold"),
        Text(collection.study.reference, style="dim"),
        Text(collection.study.answer(collection.outcome), style="bold"),
        FittingTable(shown),
        *more,
        outcome_view(collection.outcome, num_claims, collection.study.families),
        *(Text(note, style="yellow") for note in collection.notes),
        Text(f"From {collection.path}.", style="dim"),
        *(Text(f"Written: {path}", overflow="fold") for path in written),
        *(Text(note, style="dim") for note in panels_note(collection) if written),
    )


def outcome_view(
    outcome: StudyOutcome, num_claims: int = 0, families: Mapping[str, str] | None = None
) -> RenderableType:
    """The claims that fail, the counts in a sentence, other claims, and cases that disagree or cannot be decided."""
    style = "bold green" if outcome.holds else "bold yellow"
    every = outcome.shown((families or {}) if num_claims else {})
    shown = every[: num_claims or None]
    parts = [_claim(claim) for claim in shown if claim.holds is False]
    parts += [Text(outcome.sentence, style=style), *(_claim(claim) for claim in shown if claim.holds is not False)]
    if len(outcome.claims) > len(shown):
        parts.append(Text(f"  --claims 0 prints all {len(outcome.claims)} claims one by one.", style="dim"))
    for checked in (outcome.disagreements, outcome.undecidable):
        parts += [Text(f"  {one.word}: {_case(one)}") for one in checked[:_MAX_CASES]]
        if len(checked) > _MAX_CASES:
            parts.append(Text(f"  and {len(checked) - _MAX_CASES} more", style="dim"))
    return Group(*parts)


def _claim(claim: Claim) -> Text:
    return Text(f"  {claim.outcome}: {claim.sentence}{f' ({claim.detail})' if claim.detail else ''}")


def _case(checked: CaseOutcome) -> str:
    case = ", ".join(f"{words(name)} {value}" for name, value in checked.case.items())
    gap = "" if checked.gap is None else f", gap {checked.gap:.3g}"
    values = f"measured {checked.measured:.6g}, predicted {checked.predicted:.6g}"
    return f"{words(checked.measured_name)} {values}{gap} ({case})"


def _description_lines(description: StudyDescription) -> list[tuple[str, str]]:
    lines = [("study", f"{description.name}, version {description.version}"), ("reference", description.reference)]
    lines.append(("cases", f"{description.num_cases:,}, {description.num_done:,} of them done"))
    lines += [(f"  {words(name)}", values) for name, values in description.axes.items()]
    lines.append(("data", _data_line(description)))
    cost = f"{_duration(description.predicted_seconds)} of one core, about "
    wall = f"{_duration(description.predicted_wall_seconds)} with {description.num_workers} workers"
    threads = f", {description.threads} threads each" if description.threads > 1 else ""
    lines.append(("predicted cost", f"{cost}{wall}{threads}"))
    lines.append(("figures", "; ".join(description.figures)))
    return lines


def _data_line(description: StudyDescription) -> str:
    if not description.data_choices:
        return "none"
    marked = [f"{name} (not here)" if name in description.missing_data else name for name in description.data_choices]
    return f"{description.data}; can use {', '.join(marked)}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _counts(summary: Summary | None) -> tuple[str, str]:
    if summary is None:
        return "", ""
    return f"{summary.num_done:,}", f"{summary.num_failed:,}" if summary.num_failed else ""


def _table(*labels: str, numbers: Sequence[str] = ()) -> RichTable:
    table = new_table()
    for place, label in enumerate(labels):
        table.add_column(label, overflow="fold", no_wrap=place == 0)
    for label in numbers:
        table.add_column(label, justify="right", overflow="fold")
    return table
