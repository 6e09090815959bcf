"""From rows to curves: splitting and averaging, no drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import unknown_name
from hessmap.studies import INDEX, Lines, Row, Series
from hessmap.views.study_panels.panels import grouped
from hessmap.views.study_words import words

Style = Literal["line", "points", "dashed"]
_STYLES: tuple[Style, ...] = ("dashed", "line", "points")


@dataclass(frozen=True, eq=False)
class Curve:
    """Points to be joined or dotted; ``low`` and ``high`` are the extremes of the rows that were averaged."""

    x: Sequence[Any]
    y: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    label: str = ""
    style: Style = "line"
    colour: int = 0

    @property
    def has_band(self) -> bool:
        return bool((self.high > self.low).any())


def curves(figure: Lines, rows: Sequence[Row]) -> list[Curve]:
    """One colour for each series and value of ``split``, one curve for each style in it."""
    drawn: list[Curve] = []
    groups = grouped(rows, figure.split).items()
    for colour, (series, (value, group)) in enumerate(product(figure.series, groups)):
        label = _label(series, figure, value, group[0])
        for style in _STYLES:
            name = getattr(series, style)
            if name and not any(name in row for row in rows):
                raise unknown_name(f"the {style} of series {series.label!r}", name, rows[0].names())
            having = [row for row in group if name and name in row]
            if having:
                drawn.append(replace(_averaged(having, figure.x, name), label=label, style=style, colour=colour))
    return drawn


def _label(series: Series, figure: Lines, value: Any, row: Row) -> str:
    label = series.label
    for name in row.case:
        label = label.replace("{" + name + "}", str(row.case[name]))
    if figure.split and label == series.label:
        return f"{label}, {words(figure.split)} {value}" if label else f"{words(figure.split)} {value}"
    return label


def _averaged(rows: Sequence[Row], x: str, name: str) -> Curve:
    """The mean curve of rows: over equal x for numbers, place by place for arrays (to the shortest)."""
    if rows[0].is_array(name):
        length = min(row.array(name).size for row in rows)
        values = np.stack([row.array(name).ravel()[:length] for row in rows])
        places = np.arange(1, length + 1) if x == INDEX else rows[0].array(x)[:length]
        return Curve(places.tolist(), values.mean(0), values.min(0), values.max(0))
    by_x: dict[Any, list[float]] = {}
    for row in rows:
        by_x.setdefault(row[x] if isinstance(row[x], str) else row.number(x), []).append(row.number(name))
    xs = list(by_x) if any(isinstance(value, str) for value in by_x) else sorted(by_x)
    means, lows, highs = (np.array([reduced(by_x[value]) for value in xs]) for reduced in (np.mean, min, max))
    return Curve(xs, means, lows, highs)
