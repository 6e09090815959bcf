"""One case and its record, read by dotted names: what checks, findings, tables and figures see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import InvalidInput, sentence, unknown_name


@dataclass(frozen=True, eq=False)
class Row:
    """A case and its record under one roof of names.

    A dotted name walks into records; a record that has a ``value`` (a predicted or measured rank) counts as a number.

    >>> row = Row({"width": 3}, {"measured": {"record": "RankMeasurement", "value": 7, "decidable": True}})
    >>> row["width"], row["measured.decidable"], row.number("measured")
    (3, True, 7.0)
    """

    case: Mapping[str, Any]
    record: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        value: Any = self.record if name.split(".")[0] in self.record else self.case
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise unknown_name("a name in a record", name, self.names())
            value = value[part]
        return value

    def __contains__(self, name: str) -> bool:
        try:
            self[name]
        except InvalidInput:
            return False
        return True

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - this is what get is made of

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
