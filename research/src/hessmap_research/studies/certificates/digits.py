"""Certificates of a small network on the digits, in every basis: in which order do the bounds come out?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from hessmap_research.runner.claims import Answer, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Study, grid
from hessmap_research.runner.view import View
from hessmap_research.studies.certificates.certificate_record import (
    BASES,
    BOUND,
    BOUND_AND_TEST_ERROR,
    PARTS_OF_BOUND,
    bounds_by_seed,
    measure,
    what_it_is_made_of,
)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """The order of the paper's Table 1, with the margins that three seeds of this size allow."""
    found = bounds_by_seed(rows)
    for name, claim, one, other, margin in (
        (
            "basis-beats-none",
            "A curvature basis computed once is better than none by 0.05",
            "approximate",
            "standard",
            -0.05,
        ),
        (
            "recomputing-costs-nothing",
            "Recomputing the basis costs at most 0.003 compared with computing it once",
            "iterative",
            "approximate",
            0.003,
        ),
        (
            "activity-beats-weights",
            "Factors by activity beat those from weights alone",
            "iterative_activity",
            "iterative_weights",
            0.0,
        ),
        (
            "measured-factor-is-best",
            "No output factor from weights beats the measured one",
            "iterative",
            "iterative_activity",
            0.0,
        ),
    ):
        pairs = [(bounds[one], bounds[other]) for bounds in found.values() if one in bounds and other in bounds]
        yield Claim.paired(name, claim, pairs, partial(_is_below, margin), ".4f")
    unseen = [(row.number("stochastic_test_error"), row.number("bound")) for row in rows]
    detail = f"largest share of the bound {max(error / bound for error, bound in unseen):.2f}"
    yield Claim(
        "test-error-below-bound",
        "No bound is below the error on test data",
        all(error < bound for error, bound in unseen),
        detail,
    )


def _is_below(margin: float, first: float, second: float) -> bool:
    return first < second + margin


STUDY = Study(
    name="certificates/digits",
    question="Which basis of the posterior gives the tightest certificate of a small network?",
    reference="Wu et al. 2022, section 6 and Table 1, on the embedded digits, 0-4 against 5-9",
    cases=grid(network=["T-20"], basis=BASES, iterations=[2000], draws=[100_000], seed=range(3)),
    measure=measure,
    data=("digits",),
    claims=claims,
    seconds=lambda case: 4.0,
    version=2,
    view=View(
        figures=(what_it_is_made_of("basis"), BOUND_AND_TEST_ERROR),
        table=("basis", "seed", BOUND, *PARTS_OF_BOUND),
        group_by=("basis",),
    ),
    answered=Answer(
        "The iterative one, by a little, in three of three seeds; every basis of the curvature beats the standard"
        " one by 0.05.",
        num_claims=5,
        inconclusive=("activity-beats-weights",),
    ),
)
