"""The outcome of every claim of every stored study, in the order in which the study states them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hessmap.runs.collection import collection_from_results
from hessmap.runs.registry import find, listing

RESULTS = Path(__file__).parents[1] / "results"


def study_outcomes() -> dict[str, Any]:
    """Study -> counts of cases, and one word for each claim."""
    found: dict[str, Any] = {}
    for listed in listing():
        verdict = collection_from_results(find(listed.name), RESULTS).verdict
        counts = (verdict.num_cases, verdict.num_agree, verdict.num_disagree, verdict.num_undecidable)
        found[listed.name] = {"cases": list(map(int, counts)), "claims": [one.outcome for one in verdict.findings]}
    return found
