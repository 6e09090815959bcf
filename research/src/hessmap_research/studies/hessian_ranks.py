"""Ranks of the three Hessians of a problem, measured, certified and predicted: what all studies of ranks share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import le
from typing import TYPE_CHECKING, Any

from hessmap.records import PARTS, Part
from hessmap_research.runner.claims import Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.view import Series

if TYPE_CHECKING:
    from hessmap.problem.problem import Problem
    from hessmap.records import RankCertificate, RankMeasurement, Spectrum

# Exact elimination takes the entries as Python integers: some GB beyond this size.
LARGEST_CERTIFIED = 3000
NAMES: dict[Part, str] = {"outer_product": "H_o", "functional": "H_f", "loss": "H_L"}
SYMBOLS: dict[Part, str] = {part: f"${name}$" for part, name in NAMES.items()}
RANK_CHECKS = tuple(Check(f"measured.{part}", f"predicted.{part}") for part in PARTS)
RANKS = tuple(Series(SYMBOLS[part], line=f"predicted.{part}", points=f"measured.{part}", part=part) for part in PARTS)
FRACTIONS = tuple(
    Series(SYMBOLS[part], line=f"predicted_fraction.{part}", points=f"measured_fraction.{part}", part=part)
    for part in PARTS
)


def hessian_spectra(problem: Problem) -> dict[Part, Spectrum]:
    """All eigenvalues of H_o, H_f and H_L; their ranks are relative to the norm of H_L."""
    from hessmap.hessians.operators import functional_hessian, loss_hessian, outer_product_hessian
    from hessmap.measurement.rank import spectra_by_blocks

    hessians = [hessian(problem) for hessian in (outer_product_hessian, functional_hessian, loss_hessian)]
    return dict(zip(PARTS, spectra_by_blocks(hessians), strict=True))


def measured_ranks(problem: Problem) -> dict[Part, RankMeasurement]:
    """The numerical ranks of the three Hessians, relative to the norm of the loss Hessian."""
    from hessmap.measurement import numerical_rank

    spectra = hessian_spectra(problem)
    return {part: numerical_rank(spectra[part]) for part in PARTS}


def certified_ranks(problem: Problem, largest: int = LARGEST_CERTIFIED) -> dict[Part, RankCertificate]:
    """The exact ranks of the three Hessians, or none if the problem has more than ``largest`` parameters."""
    from hessmap.exact import certified_rank

    return {part: certified_rank(problem, part) for part in PARTS} if problem.num_parameters <= largest else {}


def data_ranks(problem: Problem, bias: bool) -> tuple[dict[str, Any], bool]:
    """What ``predict_ranks`` asks of the data of a network with or without bias, and whether all of it is decidable."""
    from hessmap.maps.curvature_map.dense import measured_data_ranks

    found = measured_data_ranks(problem)
    ranks = {
        "input_rank": found.input_rank,
        "centred_input_rank": found.centred_input_rank,
        "residual_rank": found.residual_rank_with_bias if bias else found.residual_rank,
    }
    known: dict[str, Any] = {name: rank.value for name, rank in ranks.items()}
    if bias:
        known["mean_residual_is_zero"] = found.mean_residual_is_zero
    return known, all(rank.decidable for rank in ranks.values())


def decidability_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """How many of the cases a threshold cannot decide, and whether the ranks of the data are decided."""
    is_undecidable = [not all(row[f"measured.{part}.decidable"] for part in PARTS) for row in rows]
    smallest = min(row[f"measured.{part}.gap"] for row in rows for part in PARTS)
    detail = f"{sum(is_undecidable)} of {len(rows)}; the smallest gap is {smallest:.1e}"
    few = sum(is_undecidable) <= 0.02 * len(rows)
    yield Claim("few-undecidable", "At most 2 % of the cases are undecidable", few, detail)
    claim = "The ranks of the data are decidable"
    yield Claim.about("data-ranks-decidable", claim, rows, lambda row: row["data_ranks.are_decidable"])


def certified_rank_claim(rows: Sequence[Row]) -> Claim:
    """A numerical rank counts eigenvalues above a threshold, and cannot count more than are not zero."""
    names = [(f"measured.{part}", f"certified.{part}") for part in PARTS]
    certified = [row for row in rows if "certified" in row]
    pairs = [(row.number(measured), row.number(exact)) for row in certified for measured, exact in names]
    num_equal = sum(measured == exact for measured, exact in pairs)
    detail = f"equal in {num_equal} of {{total}} cases, above in {{wrong}}"
    claim = "ReLU: the numerical rank is never above the certified one"
    return Claim.about("numerical-below-certified", claim, pairs, lambda pair: le(*pair), detail)


def curves_of(rows: Sequence[Row], x: str, by: tuple[str, ...] = ("data", "loss", "init")) -> Iterator[list[Row]]:
    """The rows that agree in the fields ``by``, one group at a time, ordered by ``x``."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    for group in groups.values():
        yield sorted(group, key=lambda row: row.number(x))
