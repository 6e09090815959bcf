"""The committed results of every study, read and judged once for all tests of a process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hessmap_research.runner.collection import Collection, collection_from_results
from hessmap_research.runner.registry import find

RESULTS = Path(__file__).parents[1] / "results"


@cache
def committed(name: str) -> Collection:
    return collection_from_results(find(name), RESULTS)
