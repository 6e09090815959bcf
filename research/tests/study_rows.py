"""Rows of studies on small cases, as the store gives them back."""

from __future__ import annotations

from typing import Any

from hessmap.records.record import decode, encode
from hessmap_research.studies import Row, Study


def as_stored(case: Any, record: Any) -> Row:
    """A row as the store gives it back."""
    return Row(case, decode(encode(record)))


def measured(study: Study, data: str = "digits", **fields: Any) -> list[Row]:
    """The rows of the cases with these fields."""
    cases = [case for case in study.cases_on(data) if all(case.get(name) == value for name, value in fields.items())]
    assert cases, f"no case of {study.name} has {fields}"
    return [as_stored(case, study.measure(case)) for case in cases]


def changed(row: Row, **fields: Any) -> Row:
    """The row with other fields in its record."""
    return Row(row.case, {**row.record, **fields})
