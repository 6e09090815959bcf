"""Rank against width: two hidden layers of one width, from a narrow bottleneck to far wider than the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product

from hessmap.studies import Case, Finding, Row, Study
from hessmap.studies.fcn.rank_record import measure, seconds
from hessmap.studies.fcn.rank_sweep import DATA, settings, sweep_view
from hessmap.studies.rank_comparison import RANK_CHECKS, curves_of, doubts

_PAPERS_WIDTHS = (2, 5, 10, 15, 20, 25, 30, 35, 40, 45)
_WIDTHS = {"digits": (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16)}  # up to 1,440 parameters in place of 5,355


def cases(data: str) -> tuple[Case, ...]:
    return tuple(
        {"width": width, "widths": (64, width, width, 10), **setting}
        for setting, width in product(settings(data), _WIDTHS.get(data, _PAPERS_WIDTHS))
    )


def findings(rows: Sequence[Row]) -> Iterator[Finding]:
    """The text beside Figure 4a, where the hidden layers are at least as wide as the output."""
    yield from doubts(rows)
    steps = [
        (narrow["measured_fraction.loss"], wide["measured_fraction.loss"])
        for curve in curves_of(rows, "width")
        for narrow, wide in pairwise(curve)
        if narrow["width"] >= narrow["widths"][-1]
    ]
    if steps:
        num_falling = sum(wide < narrow for narrow, wide in steps)
        detail = f"at {num_falling} of {len(steps)} steps, down to {min(wide for _, wide in steps):.3f}"
        claim = "From the width of the output on, rank / number of parameters of H_L falls with the width"
        yield Finding(claim, num_falling == len(steps), detail)


STUDY = Study(
    name="fcn/rank-vs-width",
    question="Do the ranks of the three Hessians follow the formulas for every width of the hidden layers?",
    reference="Singh, Bachmann & Hofmann 2021, Figures 3b, 4a, S6b to S16b",
    cases=cases,
    measure=measure,
    data=DATA,
    checks=RANK_CHECKS,
    findings=findings,
    seconds=seconds,
    view=sweep_view("width", "width of both hidden layers"),
)
