"""A claim about cases that differ in one field and agree in all others: what growth, or training, does to a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hessmap.studies import Finding, Row


@dataclass(frozen=True, kw_only=True)
class NeighbourClaim:
    """``relation(after, before)`` holds for each of the values ``names``, along each of the fields ``along``.

    Compared are neighbours in the order of the field, or with ``ends_only`` its first and last value; ``where`` keeps
    the rows whose fields have these values.
    """

    text: str
    along: tuple[str, ...]
    names: tuple[str, ...]
    relation: Callable[[float, float], bool]
    where: Mapping[str, Any] = field(default_factory=dict)
    ends_only: bool = False

    def findings(self, rows: Sequence[Row]) -> Iterator[Finding]:
        """The finding on these rows; none where nothing can be compared."""
        chosen = [row for row in rows if all(row[name] == value for name, value in self.where.items())]
        pairs = [pair for name in self.along for pair in self._pairs(chosen, name)]
        outcomes = [self.relation(after[name], before[name]) for name in self.names for before, after in pairs]
        if outcomes:
            yield Finding(self.text, all(outcomes), f"in {sum(outcomes)} of {len(outcomes)} comparisons")

    def _pairs(self, rows: Sequence[Row], along: str) -> Iterator[tuple[Row, Row]]:
        # The widths follow from the field that varies.
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            key = tuple(value for name, value in row.case.items() if name not in (along, "widths"))
            groups.setdefault(key, []).append(row)
        for group in groups.values():
            ordered = sorted(group, key=lambda row: row[along])
            yield from pairwise(ordered[:: len(ordered) - 1] if self.ends_only and len(ordered) > 1 else ordered)
