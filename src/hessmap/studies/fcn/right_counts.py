"""Records that count the networks on which a formula is right: the claim, the checks and the columns they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hessmap.results import PARTS
from hessmap.studies import Check, Column, Finding, Row

NAMES = {"outer_product": "H_o", "functional": "H_f", "loss": "H_L"}
CHECKS = tuple(Check(f"right.{part}", "num_networks", "equal") for part in PARTS)


def all_right(rows: Sequence[Row]) -> Iterator[Finding]:
    """One claim for each Hessian: its formula is right on every network of every row."""
    num_networks = sum(row["num_networks"] for row in rows)
    for part, name in NAMES.items():
        right = sum(row["right"][part] for row in rows)
        detail = f"{right:,} of {num_networks:,}"
        yield Finding(f"The formula of {name} is right on every network", right == num_networks, detail)


def right_columns(field: str, label: str) -> tuple[Column, ...]:
    return tuple(Column(f"{field}.{part}", f"{name}, {label}") for part, name in NAMES.items())
