"""The figures of a view with their facets opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hessmap.runs.view import Figure
from hessmap.studies import Row
from hessmap.views.study_words import words


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes: a figure of the view and the rows that it shows."""

    title: str
    figure: Figure
    rows: tuple[Row, ...]


def panels(figures: Sequence[Figure], rows: Sequence[Row]) -> list[Panel]:
    """One panel for each figure and value of its facet; a figure without a row gives none."""
    opened: list[Panel] = []
    for figure in figures:
        shown = [row for row in rows if _matches(row, figure.where)]
        for value, group in grouped(shown, figure.facet).items():
            title = f"{figure.title}, {words(figure.facet)} {value}" if figure.facet else figure.title
            opened.append(Panel(title, figure, tuple(group)))
    return opened


def grouped(rows: Sequence[Row], name: str) -> dict[Any, list[Row]]:
    """Rows by the value under a name, in the order of their first row; without a name all are one group."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[name] if name else "", []).append(row)
    return groups


def _matches(row: Row, where: Mapping[str, Any]) -> bool:
    return all(name in row and row[name] == value for name, value in where.items())
