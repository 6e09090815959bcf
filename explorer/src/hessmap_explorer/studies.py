"""The gallery of studies and papers, one study with its points, and one of its cases."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import Any

from fastapi import APIRouter

from hessmap.errors import require, unknown_name
from hessmap.records import DEFAULT_STORE, command_line, encode
from hessmap.records.strict_json import plain
from hessmap_explorer.answers import Answer, shown_entry
from hessmap_explorer.figures.studies import study_figures
from hessmap_explorer.maps import table
from hessmap_explorer.python_lines import study_lines
from hessmap_explorer.reading import require_own_file, warm_up
from hessmap_explorer.settings import Explorer
from hessmap_research.papers.registry import STATUSES, papers, stored_outcomes
from hessmap_research.runner.claims import StudyOutcome
from hessmap_research.runner.collection import (
    Collection,
    NoRecords,
    collection_from_results,
    collection_from_store,
    results_folder,
    results_path,
)
from hessmap_research.runner.description import study_description
from hessmap_research.runner.encoding import case_key, case_of_key
from hessmap_research.runner.registry import Listing, find, listing
from hessmap_research.runner.run import repeat_command
from hessmap_research.runner.store import StudyStore
from hessmap_research.views.table import study_table

_MOST_LINES = 300
_MOST_CASES = 100


def studies_router(explorer: Explorer) -> APIRouter:
    """The routes of an explorer about studies and papers."""
    router = APIRouter(prefix="/api")

    @router.get("/studies")
    def gallery() -> Answer:
        warm_up()
        heads = [{"number": one.number, "name": one.name} for one in papers()]
        return Answer({"studies": _gallery(explorer), "papers": heads})

    @router.get("/studies/{family}/{question}")
    def one(family: str, question: str, data: str | None = None) -> Answer:
        name = known_study(f"{family}/{question}")
        with shown_entry(f"the records of study {name}"):
            return Answer(_study(explorer, name, data))

    @router.get("/studies/{family}/{question}/case")
    def case(family: str, question: str, key: str) -> Answer:
        """The record of one case, and the command that repeats it."""
        name = known_study(f"{family}/{question}")
        require(len(key) <= 20_000, "a case must be at most 20,000 characters long", f"it has {len(key):,}")
        wanted = case_key(case_of_key(key))
        with shown_entry(f"the records of study {name}"):
            return Answer(_case(explorer, name, wanted))

    @router.get("/papers")
    def registry() -> Answer:
        items = [
            {**item.to_dict(), "kind": item.kind, "is_missing": item.is_missing}
            for paper in papers()
            for item in paper.items
        ]
        heads = [
            {
                "number": one.number,
                "name": one.name,
                "title": one.title,
                "question": one.question,
                "answer": one.answer,
                "counts": one.counts(),
            }
            for one in papers()
        ]
        return Answer({"papers": heads, "items": items, "statuses": STATUSES})

    return router


@lru_cache(maxsize=1)
def _listing() -> tuple[Listing, ...]:
    """The project's own studies; reading their files takes most of a second."""
    return listing()


def known_study(name: str) -> str:
    """The name of a listed study: nothing else is imported, whatever an address says."""
    known = [listed.name for listed in _listing()]
    if name not in known:
        raise unknown_name("study", name, known)
    return name


def _gallery(explorer: Explorer) -> list[dict[str, Any]]:
    """Every study: its question, the papers whose items it is about, the stored outcome, what the store holds."""
    counts: dict[str, tuple[int, int]] = {}
    if explorer.store.exists():
        with StudyStore(explorer.store) as store:
            counts = {one.study: (one.num_done, one.num_failed) for one in store.summaries()}
    of_papers: dict[str, list[int]] = {}
    for paper in papers():
        for item in paper.items:
            for study in item.studies:
                of_papers.setdefault(study, []).append(paper.number)
    outcomes = stored_outcomes()
    shown = []
    for listed in _listing():
        outcome = outcomes.get(listed.name)
        done, failed = counts.get(listed.name, (0, 0))
        shown.append(
            {
                "name": listed.name,
                "question": listed.question,
                "reference": listed.reference,
                "papers": sorted(set(of_papers.get(listed.name, []))),
                "verdict": outcome.sentence if outcome else "",
                "outcome": outcome_word(outcome) if outcome else "not run",
                "data": sorted(filter(None, outcome.data)) if outcome else [],
                "num_cases": outcome.num_cases if outcome else 0,
                "stored": done,
                "failed": failed,
            }
        )
    return shown


def outcome_word(outcome: StudyOutcome) -> str:
    """The stored outcome of a study in a word: what contradicts a claim comes first, then what is open.

    >>> outcome_word(StudyOutcome("a/b", 6, num_agree=6))
    'all hold'
    >>> outcome_word(StudyOutcome("a/b", 6, num_agree=5, num_undecidable=1))
    'some open'
    """
    if not outcome.num_judged and not outcome.claims:
        return "nothing to compare"
    if outcome.fails:
        return "some fail"
    is_open = outcome.num_undecidable > 0 or any(claim.holds is None for claim in outcome.claims)
    return "some open" if is_open else "all hold"


def _collection(explorer: Explorer, name: str, data: str | None) -> Collection:
    """From the store where it has records of the study, else from the exported results."""
    study = find(name)
    try:
        return collection_from_store(study, explorer.store, data)
    except NoRecords:
        folder = explorer.results or results_folder(study)
        path = results_path(study, folder)
        if not os.path.lexists(path):
            raise
        require_own_file(path)
    return collection_from_results(study, folder, data)


def _study(explorer: Explorer, name: str, data: str | None) -> dict[str, Any]:
    study = find(name)
    description = study_description(study, data, explorer.store)
    shown: dict[str, Any] = {
        "name": name,
        "question": study.question,
        "reference": study.reference,
        "description": description.to_dict(),
        "commands": [command_line("study", "run", *([f"--data={data}"] if data else []), values=[name])],
        "has_records": False,
    }
    try:
        found = _collection(explorer, name, data)
    except NoRecords as error:
        return {**shown, "gap": str(error)}
    outcome, contents = found.outcome, study_table(found, _MOST_LINES)
    return {
        **shown,
        "has_records": True,
        "answer": study.answer(outcome),
        "verdict": f"{outcome.against} {outcome.sentence}".strip(),
        "outcome": "fails" if outcome.fails else "holds" if outcome.holds else "open",
        "findings": [
            {"id": claim.id, "outcome": claim.outcome, "claim": claim.sentence, "detail": claim.detail}
            for claim in outcome.claims
        ],
        "judgements": _checked_cases(outcome),
        "figures": _figures(name, found),
        "table": table(contents),
        "hidden": contents.num_left_out,
        "data": sorted({str(row.case["data"]) for row in found.stored.rows if study.data}),
        "num_records": len(found.stored.rows),
        "failures": [
            {"case": failure.key, "error": failure.error.split("\n")[0]}
            for failure in found.stored.failures[:_MOST_LINES]
        ],
        "source": found.source,
        "notes": found.notes,
    }


def _figures(name: str, found: Collection) -> list[dict[str, Any]]:
    return [
        {**figure.to_dict(), "python": study_lines(name, panel)} for panel, figure in enumerate(study_figures(found))
    ]


def _checked_cases(outcome: StudyOutcome) -> list[dict[str, Any]]:
    every = (*outcome.disagreements, *outcome.undecidable)
    return [
        {
            "outcome": one.word,
            "key": case_key(one.case),
            "name": one.measured_name,
            "measured": f"{one.measured:.6g}",
            "predicted": f"{one.predicted:.6g}",
        }
        for one in every[:_MOST_CASES]
    ]


def _case(explorer: Explorer, name: str, wanted: str) -> dict[str, Any]:
    found = _collection(explorer, name, None)
    for row in found.stored.rows:
        if case_key(row.case) == wanted:
            data = str(row.case.get("data", "")) if found.study.data else ""
            return {
                "key": wanted,
                "case": plain("case", dict(row.case), lambda _: None),
                "record": json.loads(encode(row.record)),
                "command": repeat_command(name, wanted, data, DEFAULT_STORE),
            }
    raise unknown_name("a case", wanted[:200], [f"one of the {len(found.stored.rows):,} records of {name}"])
