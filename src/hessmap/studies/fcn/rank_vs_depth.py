"""Rank against depth: hidden layers of one width, from none to nine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product

from hessmap.studies import Case, Finding, Row, Study
from hessmap.studies.fcn.rank_record import measure, seconds
from hessmap.studies.fcn.rank_sweep import DATA, settings, sweep_view
from hessmap.studies.rank_comparison import RANK_CHECKS, curves_of, doubts

_NUM_HIDDEN = range(10)
_PAPERS_SIZES = (16, 25, 10)
# Up to 1,199 parameters in place of 5,650. Of ten classes the tenth singular value of a product of ten such narrow
# matrices is 1e-5 of the first, too little for any threshold: there are five.
_SIZES = {"digits": (16, 11, 5)}


def cases(data: str) -> tuple[Case, ...]:
    input_dim, width, output_dim = _SIZES.get(data, _PAPERS_SIZES)
    return tuple(
        {"num_hidden": count, "widths": (input_dim, *[width] * count, output_dim), **setting}
        for setting, count in product(settings(data), _NUM_HIDDEN)
    )


def findings(rows: Sequence[Row]) -> Iterator[Finding]:
    """The text beside Figures 4b and 5: the fraction levels off at what one more layer adds, rank over parameters."""
    yield from doubts(rows)
    steps = [
        (_distance(shallow), _distance(deep))
        for curve in curves_of(rows, "num_hidden")
        for shallow, deep in pairwise(curve)
        if shallow["num_hidden"] > 0
    ]
    if steps:
        num_nearer = sum(deep < shallow for shallow, deep in steps)
        detail = f"at {num_nearer} of {len(steps)} steps, to within {min(deep for _, deep in steps):.3f}"
        claim = "Every further layer brings rank / number of parameters of H_L closer to (2qM - q^2) / M^2"
        yield Finding(claim, num_nearer == len(steps), detail)


def _distance(row: Row) -> float:
    width, q = row["widths"][1], row["data_ranks.residual_rank"]
    return float(abs(row["measured_fraction.loss"] - (2 * q * width - q**2) / width**2))


STUDY = Study(
    name="fcn/rank-vs-depth",
    question="Do the ranks of the three Hessians follow the formulas for every number of hidden layers?",
    reference="Singh, Bachmann & Hofmann 2021, Figures 3c, 4b, S6c to S16c",
    cases=cases,
    measure=measure,
    data=DATA,
    checks=RANK_CHECKS,
    findings=findings,
    seconds=seconds,
    view=sweep_view("num_hidden", "number of hidden layers"),
)
