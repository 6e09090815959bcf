"""The table of a study: cells as text, for the terminal and for the page alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hessmap.runs.collection import Collection
from hessmap.runs.row import Row
from hessmap.runs.view import Column
from hessmap.views.tables.contents import Table


def words(name: str) -> str:
    """A dotted name as words.

    >>> words("predicted.outer_product"), words("num_layers")
    ('predicted outer product', 'number of layers')
    """
    parts = [f"number of {part[4:]}" if part.startswith("num_") else part for part in name.split(".")]
    return " ".join(parts).replace("_", " ")


def study_table(collection: Collection) -> Table:
    """One line for each row of a study, or for each group of them where the view groups."""
    view = collection.study.view
    groups: dict[object, list[Row]] = {}
    for place, row in enumerate(collection.stored.rows):
        key: object = tuple(row.get(name) for name in view.group_by) if view.group_by else place
        groups.setdefault(key, []).append(row)
    lines = tuple(tuple(_cell(column, rows) for column in view.columns) for rows in groups.values())
    labels = tuple(column.label or words(column.name) for column in view.columns)
    is_number = tuple(_is_number(column, collection.stored.rows) for column in view.columns)
    is_key = tuple(all(column.name in row.case for row in collection.stored.rows) for column in view.columns)
    return Table(labels, lines, is_number, is_key)


def _is_number(column: Column, rows: Sequence[Row]) -> bool:
    return all(isinstance(_plain(row, column.name), int | float | None) for row in rows)


def _plain(row: Row, name: str) -> object:
    """The value under a name; a rank counts as its value, and a name that the row lacks as None."""
    value = row.get(name)
    return value["value"] if isinstance(value, dict) and "value" in value else value


def _cell(column: Column, rows: Sequence[Row]) -> str:
    """One value, or the mean and the range of different numbers, or the different words of several rows."""
    values = [value for row in rows if (value := _plain(row, column.name)) is not None]
    texts = list(dict.fromkeys(_text(value, column.spec) for value in values))
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(texts) < 2 or len(numbers) < len(values):
        return ", ".join(texts)
    return f"{np.mean(numbers):{column.spec}} ({min(numbers):{column.spec}} to {max(numbers):{column.spec}})"


def _text(value: object, spec: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:{spec}}"
    if isinstance(value, tuple):
        return "-".join(_text(item, spec) for item in value)
    if isinstance(value, np.ndarray):
        return f"{' x '.join(map(str, value.shape))} numbers"
    return str(value)
