"""Rank against sample size: the samples enter through the rank of the inputs alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product

from hessmap.results import PARTS
from hessmap.studies import Case, Finding, Row, Study
from hessmap.studies.fcn.rank_record import measure, seconds
from hessmap.studies.fcn.rank_sweep import DATA, settings, sweep_view
from hessmap.studies.rank_comparison import RANK_CHECKS, curves_of, doubts

_NUM_SAMPLES = (2, 5, 10, 20, 30, 40, 50, 60, 100, 200, 300)
_PAPERS_WIDTHS = (64, 50, 20, 20, 20, 10)
_WIDTHS = {"digits": (64, 14, 12, 12, 12, 10)}  # 1,472 parameters in place of 5,200


def cases(data: str) -> tuple[Case, ...]:
    widths = _WIDTHS.get(data, _PAPERS_WIDTHS)
    return tuple(
        {"num_samples": count, "widths": widths, **setting} for setting, count in product(settings(data), _NUM_SAMPLES)
    )


def findings(rows: Sequence[Row]) -> Iterator[Finding]:
    """The text beside Figure 3a: the samples have no say but through the ranks of the data."""
    yield from doubts(rows)
    num_compared = num_equal = 0
    for curve in curves_of(rows, "num_samples"):
        for fewer, more in pairwise(curve):
            if fewer["data_ranks"] == more["data_ranks"]:
                num_compared += 1
                num_equal += _ranks(fewer) == _ranks(more)
    if num_compared:
        detail = f"in {num_equal} of {num_compared} cases"
        yield Finding("More samples of the same ranks change no rank", num_equal == num_compared, detail)


def _ranks(row: Row) -> list[float]:
    return [row.number(f"measured.{part}") for part in PARTS]


STUDY = Study(
    name="fcn/rank-vs-samples",
    question="Do the ranks of the three Hessians follow the formulas for every number of samples?",
    reference="Singh, Bachmann & Hofmann 2021, Figures 3a, S6a to S16a",
    cases=cases,
    measure=measure,
    data=DATA,
    checks=RANK_CHECKS,
    findings=findings,
    seconds=seconds,
    view=sweep_view("num_samples", "number of samples"),
)
