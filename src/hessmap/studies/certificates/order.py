"""Bounds that differ in their basis alone, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from hessmap.studies import Row


def by_seed(rows: Sequence[Row]) -> dict[tuple[str, str, int], dict[str, float]]:
    """For each data set, network and seed, the bound in every basis."""
    found: dict[tuple[str, str, int], dict[str, float]] = {}
    for row in rows:
        key = (row["data"], row["network"], row["seed"])
        found.setdefault(key, {})[row["basis"]] = row.number("bound")
    return found
