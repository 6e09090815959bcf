"""One case and its record, read by dotted names: what checks, claims, tables and figures read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import sub, truediv
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import InvalidInput, sentence, unknown_name

_MISSING = object()
_COMBINED = {" / ": truediv, " - ": sub}


@dataclass(frozen=True, eq=False)
class Row:
    """A case and its record under one roof of names.

    A dotted name walks into records; a record that has a ``value`` (a predicted or measured rank) counts as a number.
    Two names with " / " or " - " between them are the quotient or the difference of their numbers, or of their arrays.

    >>> row = Row({"width": 3}, {"measured": {"record": "RankMeasurement", "value": 7, "decidable": True}})
    >>> row["width"], row["measured.decidable"], row.number("measured")
    (3, True, 7.0)
    >>> row["measured / width"], row["measured - width"]
    (2.3333333333333335, 4.0)
    """

    case: Mapping[str, Any]
    record: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        value = self.get(name, _MISSING)
        if value is _MISSING:
            raise unknown_name("a name in a record", name, self.names())
        return value

    def __contains__(self, name: str) -> bool:
        return self.get(name, _MISSING) is not _MISSING

    def get(self, name: str, default: Any = None) -> Any:
        """The value under a dotted name, of the record first, or the default where there is none."""
        for sign, combine in _COMBINED.items():
            if sign in name:
                one, other = name.split(sign)
                return combine(self._plain(one), self._plain(other)) if one in self and other in self else default
        first, *rest = name.split(".")
        value: Any = self.record.get(first, _MISSING)
        if value is _MISSING:
            value = self.case.get(first, _MISSING)
        for part in rest:
            value = value.get(part, _MISSING) if isinstance(value, Mapping) else _MISSING
        return default if value is _MISSING else value

    def names(self) -> tuple[str, ...]:
        """Every dotted name that leads to a value, of the case first."""
        return (*self.case, *_walk(self.record))

    def number(self, name: str) -> float:
        value = self[name]
        if isinstance(value, Mapping) and "value" in value:
            value = value["value"]
        if isinstance(value, bool | int | float):
            return float(value)
        raise InvalidInput(sentence(f"{name!r} must lead to a number", f"it leads to a {type(value).__name__}"))

    def _plain(self, name: str) -> float | NDArray[np.float64]:
        return self.array(name) if self.is_array(name) else self.number(name)

    def is_array(self, name: str) -> bool:
        return isinstance(self[name], np.ndarray | tuple)

    def array(self, name: str) -> NDArray[np.float64]:
        value = self[name]
        if isinstance(value, np.ndarray | tuple):
            return np.asarray(value, dtype=np.float64)
        raise InvalidInput(sentence(f"{name!r} must lead to an array", f"it leads to a {type(value).__name__}"))


def _walk(values: Mapping[str, Any]) -> tuple[str, ...]:
    names: list[str] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            names += [f"{name}.{inner}" for inner in _walk(value)]
        else:
            names.append(name)
    return tuple(names)
