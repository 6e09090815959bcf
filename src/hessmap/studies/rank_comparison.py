"""What all studies of predicted against measured ranks share: checks, series, doubts, and the curves of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap.results import PARTS
from hessmap.studies import Check, Finding, Row, Series

SYMBOLS = {"outer_product": "$H_o$", "functional": "$H_f$", "loss": "$H_L$"}
RANK_CHECKS = tuple(Check(f"measured.{part}", f"predicted.{part}") for part in PARTS)
RANKS = tuple(Series(SYMBOLS[part], line=f"predicted.{part}", points=f"measured.{part}") for part in PARTS)
FRACTIONS = tuple(
    Series(SYMBOLS[part], line=f"predicted_fraction.{part}", points=f"measured_fraction.{part}") for part in PARTS
)


def doubts(rows: Sequence[Row]) -> Iterator[Finding]:
    """How many of the cases a threshold cannot decide, and whether the predictions stand on firm ranks of the data."""
    is_undecidable = [not all(row[f"measured.{part}.decidable"] for part in PARTS) for row in rows]
    smallest = min(row[f"measured.{part}.gap"] for row in rows for part in PARTS)
    detail = f"{sum(is_undecidable)} of {len(rows)}; the smallest gap is {smallest:.1e}"
    yield Finding("At most 2 % of the cases are undecidable", sum(is_undecidable) <= 0.02 * len(rows), detail)
    num_firm = sum(row["data_ranks.are_decidable"] for row in rows)
    detail = f"in {num_firm} of {len(rows)} cases"
    yield Finding("The ranks of the data are decidable", num_firm == len(rows), detail)


def curves_of(rows: Sequence[Row], x: str, by: tuple[str, ...] = ("data", "loss", "init")) -> Iterator[list[Row]]:
    """The rows that agree in the fields ``by``, one group at a time, ordered by ``x``."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    for group in groups.values():
        yield sorted(group, key=lambda row: row.number(x))
