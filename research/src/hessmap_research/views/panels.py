"""From the rows of a study to panels, curves and points: selecting, splitting and averaging, no drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import unknown_name
from hessmap.records import Part
from hessmap.views.plots.style import literal, mathematics
from hessmap_research.runner.collection import Collection
from hessmap_research.runner.row import Row
from hessmap_research.runner.view import INDEX, Cloud, Figure, Lines, Series
from hessmap_research.views.table import counted, phrase, shown_value, spelled, words

Style = Literal["line", "points", "dashed"]
MOST_PANELS = 9
_STYLES: tuple[Style, ...] = ("dashed", "line", "points")


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes: a figure of the view and the rows that it shows, those of one value of its facet."""

    figure: Figure
    rows: tuple[Row, ...]
    facet: str = ""

    @property
    def title(self) -> str:
        """For people to read as it stands."""
        return ", ".join(filter(None, (spelled(self.figure.title), self.facet)))

    @property
    def drawn_title(self) -> str:
        """For matplotlib: what the study writes may hold mathematics, the value of a case does not."""
        return ", ".join(filter(None, (mathematics(spelled(self.figure.title)), literal(self.facet))))


def shown_panels(collection: Collection) -> list[Panel]:
    """The panels of a study; where they are more than nine, those of its first data set alone.

    A collection of one data set (``hessmap study show --data``) shows the panels of that set.
    """
    opened = panels(collection.study.view.figures, collection.stored.rows)
    if len(opened) <= MOST_PANELS:
        return opened
    found = {row.case.get("data") for row in collection.stored.rows}
    first = next((name for name in collection.study.data if name in found), None)
    rows = [row for row in collection.stored.rows if row.case.get("data") == first]
    return panels(collection.study.view.figures, rows)


def panels_note(collection: Collection) -> tuple[str, ...]:
    """The data sets that the figures leave out, in a sentence; nothing where they show all."""
    found = dict.fromkeys(row.case["data"] for row in collection.stored.rows if "data" in row.case)
    shown = {row.case.get("data") for panel in shown_panels(collection) for row in panel.rows}
    left = [name for name in found if name not in shown]
    drawn = " and ".join(name for name in found if name in shown)
    return (f"The figures are of {drawn}; --data shows those of {', '.join(left)}.",) if left and drawn else ()


def panels(figures: Sequence[Figure], rows: Sequence[Row]) -> list[Panel]:
    """One panel for each figure and value of its facet; a figure without a row gives none."""
    opened: list[Panel] = []
    for figure in figures:
        shown = [row for row in rows if matches(row, figure.where)]
        for value, group in _groups(shown, figure.facet).items():
            opened.append(Panel(figure, tuple(group), phrase(figure.facet, value) if figure.facet else ""))
    return opened


def _groups(rows: Sequence[Row], name: str) -> dict[Any, list[Row]]:
    """Rows by the value under a name, in the order of their first row; without a name all are one group."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[name] if name else "", []).append(row)
    return groups


def matches(row: Row, where: Mapping[str, Any]) -> bool:
    """Whether the row has these values; None stands for a name that it does not have."""
    return all(row.get(name) == value for name, value in where.items())


@dataclass(frozen=True, eq=False)
class Curve:
    """Points to be joined or dotted; ``low`` and ``high`` are the extremes of the rows that were averaged.

    ``part`` is the Hessian that it is of, if it is of one. ``rows`` are those behind each point; one entry alone stands
    behind every point of a curve of arrays.
    ``has_others``: its series has other strokes, in the same colour. ``is_joined``: it is both the line and the points
    of its series, so that the line says nothing of its own.
    """

    x: Sequence[Any]
    y: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    label: str = ""
    style: Style = "line"
    part: Part | Literal[""] = ""
    colour: int = 0
    has_others: bool = False
    is_joined: bool = False
    rows: tuple[tuple[Row, ...], ...] = ()

    @property
    def has_band(self) -> bool:
        return bool((self.high > self.low).any())


def curves(figure: Lines, rows: Sequence[Row]) -> list[Curve]:
    """One colour for each series and value of ``split``, one curve for each style in it."""
    drawn: list[Curve] = []
    groups = _groups(rows, figure.split).items()
    for colour, (series, (value, group)) in enumerate(product(figure.series, groups)):
        label = _label(series, figure, value, group[0])
        is_joined = bool(series.points) and series.line == series.points
        has_others = len({getattr(series, style) for style in _STYLES} - {""}) > 1
        for style in _STYLES:
            name = getattr(series, style)
            if name and not any(name in row for row in rows):
                raise unknown_name(f"the {style} of series {series.label!r}", name, rows[0].names())
            having = [row for row in group if name and name in row]
            if having:
                mean = _mean_curve(having, figure.x, name)
                named = replace(mean, label=label, style=style, part=series.part, colour=colour, has_others=has_others)
                drawn.append(replace(named, is_joined=is_joined and style != "dashed"))
    return drawn


def _label(series: Series, figure: Lines, value: Any, row: Row) -> str:
    """The label for matplotlib, with the values of the case in the place of their names."""
    label = mathematics(series.label)
    for name in row.case:
        label = label.replace("{" + name + "}", literal(shown_value(name, row.case[name])))
    if figure.split and label == mathematics(series.label):
        split = literal(phrase(figure.split, value))
        return f"{label}, {split}" if label else split
    return label


def _mean_curve(rows: Sequence[Row], x: str, name: str) -> Curve:
    """The mean curve of rows: over equal x for numbers, place by place for arrays (to the shortest)."""
    if rows[0].is_array(name):
        length = min(row.array(name).size for row in rows)
        values = np.stack([row.array(name).ravel()[:length] for row in rows])
        places = np.arange(1, length + 1) if x == INDEX else rows[0].array(x)[:length]
        return Curve(places.tolist(), values.mean(0), values.min(0), values.max(0), rows=(tuple(rows),))
    by_x: dict[Any, list[Row]] = {}
    for row in rows:
        by_x.setdefault(literal(row[x]) if isinstance(row[x], str) else row.number(x), []).append(row)
    xs = list(by_x) if any(isinstance(value, str) for value in by_x) else sorted(by_x)
    numbers = [[row.number(name) for row in by_x[value]] for value in xs]
    means, lows, highs = (np.array([reduced(group) for group in numbers]) for reduced in (np.mean, min, max))
    return Curve(xs, means, lows, highs, rows=tuple(tuple(by_x[value]) for value in xs))


def kinds_of(figure: Cloud, rows: Sequence[Row]) -> list[str]:
    """The kinds of all points, in the order of the legend."""
    return sorted({kind for row in rows for kind in point_kinds(row, figure).tolist()}, key=sort_key)


def sort_key(kind: str) -> tuple[float, str]:
    """Numbers by size, and before words.

    >>> sorted(["relu", "10", "2"], key=sort_key)
    ['2', '10', 'relu']
    """
    try:
        return float(kind), ""
    except ValueError:
        return float("inf"), kind


def kind_label(figure: Cloud, kind: str) -> str:
    """What the legend calls the points of a kind: a number with the name of what it counts."""
    if not figure.colour:
        return ""
    if sort_key(kind)[0] == float("inf"):
        return shown_value(figure.colour, kind)
    name = figure.colour.rpartition(".")[2]
    return f"{kind} {counted(name, kind == '1')}" if name.startswith("num_") else f"{words(name)} {kind}"


def flat_values(row: Row, name: str) -> NDArray[np.float64]:
    """All numbers under a name, of an array or one alone."""
    return row.array(name).ravel() if row.is_array(name) else np.array([row.number(name)])


def point_kinds(row: Row, figure: Cloud) -> NDArray[np.str_]:
    """The kind of every point of a row, as text."""
    size = flat_values(row, figure.x).size
    if not figure.colour:
        return np.full(size, "")
    if row.is_array(figure.colour):
        return np.array([f"{kind:g}" for kind in row.array(figure.colour).ravel()])
    return np.full(size, str(row[figure.colour]))
