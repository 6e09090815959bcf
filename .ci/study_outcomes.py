"""The outcome of every claim of every stored study, in the order in which the study states them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hessmap_research.runner.collection import collection_from_results
from hessmap_research.runner.registry import find, listing

RESULTS = Path(__file__).parents[1] / "research" / "results"


def study_outcomes() -> dict[str, Any]:
    """Study -> counts of cases, and one word for each claim."""
    found: dict[str, Any] = {}
    for listed in listing():
        outcome = collection_from_results(find(listed.name), RESULTS).outcome
        counts = (outcome.num_cases, outcome.num_agree, outcome.num_disagree, outcome.num_undecidable)
        found[listed.name] = {"cases": list(map(int, counts)), "claims": [one.outcome for one in outcome.claims]}
    return found
