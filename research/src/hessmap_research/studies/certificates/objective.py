"""Following the slope of the bound itself against Pinsker's gap: which fit ends in the tighter certificate?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hessmap_research.runner.claims import Answer, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import View
from hessmap_research.studies.certificates.certificate_record import (
    BOUND,
    BOUND_AND_TEST_ERROR,
    PARTS_OF_BOUND,
    certificate_numbers,
    what_it_is_made_of,
)

_BASES = ("standard", "approximate", "iterative")


def cases(data: str) -> tuple[Case, ...]:
    """The networks of ``certificates/digits`` and T-100 of ``certificates/table-1``, fitted in both ways."""
    objectives = ("bound", "pinsker")
    if data == "digits":
        return grid(
            network=["T-20"], basis=_BASES, objective=objectives, iterations=[2000], draws=[100_000], seed=range(3)
        )
    return grid(network=["T-100"], basis=_BASES, objective=objectives, iterations=[6000], draws=[600_000], seed=[0])


def measure(case: Case) -> dict[str, Any]:
    """The certificate; that of the usual objective is shared with the other studies."""
    usual = case["objective"] == "bound"
    return certificate_numbers({name: value for name, value in case.items() if not (usual and name == "objective")})


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """One claim: in every basis and for every seed the slope of the bound wins."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        found.setdefault((row["data"], row["basis"], row["seed"]), {})[row["objective"]] = row.number("bound")
    pairs = [(both["bound"], both["pinsker"]) for both in found.values() if len(both) == 2]
    if pairs:
        shares = [ours / theirs for ours, theirs in pairs]
        detail = f"{min(shares):.3f} to {max(shares):.3f} of the bound by Pinsker's gap in {len(pairs)} pairs"
        yield Claim(
            "slope-of-bound-is-lower", "Following the slope of the bound gives a lower one", max(shares) < 1, detail
        )


STUDY = Study(
    name="certificates/objective",
    question="Is it better to follow the slope of the certified bound than that of Pinsker's gap?",
    reference="Dziugaite & Roy 2017, section 3, and Wu et al. 2022, algorithm 1, both with Pinsker's gap",
    cases=cases,
    measure=measure,
    data=("digits", "mnist"),
    claims=claims,
    seconds=lambda case: 5.0 if case["data"] == "digits" else 45.0,
    view=View(
        figures=tuple(
            replace(figure, title=f"{network} on {data}, by objective: {title}", where={"data": data})
            for data, network in (("digits", "T-20"), ("mnist", "T-100"))
            for title, figure in (
                ("parts of the bound", what_it_is_made_of("objective")),
                ("the bound", replace(BOUND_AND_TEST_ERROR, colour="objective")),
            )
        ),
        table=("data", "network", "basis", "objective", "seed", BOUND, *PARTS_OF_BOUND),
        group_by=("data", "network", "basis", "objective"),
    ),
    answered=Answer(
        "Yes: in all 12 pairs the bound is lower, 0.879 to 0.957 of that by Pinsker's gap.",
        num_claims=1,
    ),
)
