"""Series over a field: predictions as lines, measurements as points, bounds dashed."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from hessmap.studies import Lines, Row
from hessmap.views.study_panels.curves import Curve, curves
from hessmap.views.study_panels.palette import colour
from hessmap.views.study_words import words

_FEW = 60  # more points than this are drawn small


def draw_lines(axes: Axes, figure: Lines, rows: Sequence[Row]) -> None:
    labelled: set[int] = set()
    for curve in curves(figure, rows):
        _draw(axes, curve, curve.label if curve.colour not in labelled else None)
        labelled.add(curve.colour)
    axes.set_xlabel(words(figure.x))


def _draw(axes: Axes, curve: Curve, label: str | None) -> None:
    shade = colour(curve.colour)
    if curve.has_band:
        axes.fill_between(curve.x, curve.low, curve.high, color=shade, alpha=0.2, linewidth=0)
    if curve.style == "points":
        size = 4.5 if len(curve.x) <= _FEW else 1.5
        axes.plot(curve.x, curve.y, "o", color=shade, markersize=size, markerfacecolor="none", label=label)
    else:
        stroke = "--" if curve.style == "dashed" else "-"
        axes.plot(curve.x, curve.y, stroke, color=shade, linewidth=1.5, label=label)
