"""Exact ranks of the Hessians of a problem, and what they say of the numerical ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import eq, gt
from typing import TYPE_CHECKING

from hessmap.results import PARTS, Part
from hessmap.studies import Finding, Row

if TYPE_CHECKING:
    from hessmap.curvature import Problem
    from hessmap.results import RankCertificate

# Exact elimination takes the entries as Python integers: some GB beyond this size.
LARGEST_CERTIFIED = 3000


def certified_ranks(problem: Problem, largest: int = LARGEST_CERTIFIED) -> dict[Part, RankCertificate]:
    """The exact ranks of the three Hessians, or none if the problem has more than ``largest`` parameters."""
    from hessmap.curvature.finite_field import certified_rank

    return {part: certified_rank(problem, part) for part in PARTS} if problem.num_parameters <= largest else {}


def numerical_below_certified(rows: Sequence[Row]) -> Iterator[Finding]:
    """A numerical rank counts eigenvalues above a threshold, and cannot count more than are not zero."""
    certified = [row for row in rows if "certified" in row]
    if certified:
        names = [(f"measured.{part}", f"certified.{part}") for part in PARTS]
        pairs = [(row.number(measured), row.number(exact)) for row in certified for measured, exact in names]
        above, equal = (sum(kind(*pair) for pair in pairs) for kind in (gt, eq))
        detail = f"equal in {equal} of {len(pairs)} cases, above in {above}"
        yield Finding("ReLU: the numerical rank is never above the certified one", above == 0, detail)
