"""Records as tables of pandas: their arrays side by side, or their rows, or their numbers."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from hessmap.errors import InvalidInput, sentence

if TYPE_CHECKING:
    from hessmap.records.record import Record


def frame(record: Record) -> Any:
    """The record as a ``pandas.DataFrame``.

    Arrays of one length and one dimension are its columns; where there is none, the records that it holds in a tuple
    are its rows; else it has one row. Numbers of records inside have names like "rank.value".
    """
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        must, remedy = "to_frame needs pandas", "Install it (pip install pandas), or use to_dict()"
        raise InvalidInput(sentence(must, "it is not installed", remedy)) from error
    return pandas.DataFrame(columns_of(record))


def columns_of(record: Record) -> dict[str, Any]:
    """The columns of the table by name."""
    rows = record.table_rows()
    if rows is not None:
        numbers = [scalars(row) for row in rows]
        names = dict.fromkeys(name for row in numbers for name in row)
        return {name: [row.get(name) for row in numbers] for name in names}
    arrays = _arrays(record)
    return arrays or {name: [value] for name, value in scalars(record).items()}


def _arrays(record: Record) -> dict[str, Any]:
    """The arrays of the length of the first one."""
    named = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    arrays = {name: value for name, value in named.items() if isinstance(value, np.ndarray) and value.ndim == 1}
    length = max((len(array) for array in arrays.values()), default=0)
    return {name: array for name, array in arrays.items() if len(array) == length} if length > 1 else {}


def scalars(record: Record, prefix: str = "") -> dict[str, Any]:
    """Every number, word and truth value of a record and of those inside of it, without provenance."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.name == "provenance":
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            found |= scalars(value, f"{prefix}{field.name}.")  # type: ignore[arg-type]
        elif value is None or isinstance(value, str | bool | int | float | np.generic):
            found[f"{prefix}{field.name}"] = value
    return found
