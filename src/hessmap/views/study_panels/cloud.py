"""Points of two quantities, coloured by a third."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from hessmap.studies import Cloud, Row
from hessmap.views.study_panels.palette import colour, marker
from hessmap.views.study_words import words


def draw_cloud(axes: Axes, figure: Cloud, rows: Sequence[Row]) -> None:
    x, y = (np.concatenate([_values(row, name) for row in rows]) for name in (figure.x, figure.y))
    kinds = np.concatenate([_kinds(row, figure) for row in rows])
    for place, kind in enumerate(sorted(set(kinds.tolist()), key=_place)):
        chosen = kinds == kind
        label = f"{words(figure.colour)} {kind}" if figure.colour else None
        axes.plot(x[chosen], y[chosen], marker(place), color=colour(place), markersize=3.5, label=label)
    axes.set_xlabel(words(figure.x))
    axes.set_ylabel(words(figure.y))


def _place(kind: str) -> tuple[float, str]:
    """Numbers by size, and before words.

    >>> sorted(["relu", "10", "2"], key=_place)
    ['2', '10', 'relu']
    """
    try:
        return float(kind), ""
    except ValueError:
        return float("inf"), kind


def _values(row: Row, name: str) -> NDArray[np.float64]:
    return row.array(name).ravel() if row.is_array(name) else np.array([row.number(name)])


def _kinds(row: Row, figure: Cloud) -> NDArray[np.str_]:
    """The kind of every point of a row, as text."""
    size = _values(row, figure.x).size
    if not figure.colour:
        return np.full(size, "")
    if row.is_array(figure.colour):
        return np.array([f"{kind:g}" for kind in row.array(figure.colour).ravel()])
    return np.full(size, str(row[figure.colour]))
