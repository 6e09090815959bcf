"""One panel on one pair of axes: the kind of figure decides the marks, the rest is the same for all."""

from __future__ import annotations

from itertools import cycle

import numpy as np
from matplotlib.axes import Axes

from hessmap.runs.view import Scale
from hessmap.studies import Cloud, Heatmap, Histogram, Lines, Mark, Plane, Row
from hessmap.views.plots.style import FAINT, INK, dress
from hessmap.views.study_panels.cloud import draw_cloud
from hessmap.views.study_panels.heatmap import draw_heatmap
from hessmap.views.study_panels.histogram import draw_histogram
from hessmap.views.study_panels.lines import draw_lines
from hessmap.views.study_panels.panels import Panel
from hessmap.views.study_panels.plane import draw_plane

_DASHES = ((4.0, 3.0), (1.0, 2.0), (6.0, 2.0, 1.0, 2.0), (10.0, 3.0))  # so that several marks of a panel differ

def draw(axes: Axes, panel: Panel, title: str = "") -> None:
    """Draw a panel."""
    figure = panel.figure
    match figure:
        case Lines():
            draw_lines(axes, figure, panel.rows)
        case Heatmap():
            draw_heatmap(axes, figure, panel.rows)
        case Histogram():
            draw_histogram(axes, figure, panel.rows)
        case Cloud():
            draw_cloud(axes, figure, panel.rows)
        case Plane():
            draw_plane(axes, figure, panel.rows)
    _scale(axes, "x", figure.x_scale)
    _scale(axes, "y", figure.y_scale)
    for mark, dashes in zip(figure.marks, cycle(_DASHES), strict=False):
        _draw_mark(axes, mark, dashes, panel.rows)
    if figure.x_limits:
        axes.set_xlim(*figure.x_limits)
    if figure.y_limits:
        axes.set_ylim(*figure.y_limits)
    _label(axes, panel, title)


def _label(axes: Axes, panel: Panel, title: str) -> None:
    dress(axes, title)
    axes.set_xlabel(panel.figure.x_label or axes.get_xlabel(), fontsize=9, color=INK)
    axes.set_ylabel(panel.figure.y_label or axes.get_ylabel(), fontsize=9, color=INK)
    if isinstance(panel.figure, Heatmap | Plane):
        axes.grid(visible=False)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def _draw_mark(axes: Axes, mark: Mark, dashes: tuple[float, ...], rows: tuple[Row, ...]) -> None:
    """A line at a number, or at each different value that a name has in the rows."""
    places = sorted({row.number(mark.at) for row in rows if mark.at in row}) if isinstance(mark.at, str) else [mark.at]
    line = axes.axvline if mark.axis == "x" else axes.axhline
    for number, place in enumerate(places):
        label = mark.label if mark.label and number == 0 else "_nolegend_"
        line(place, color=FAINT, linestyle=(0, dashes), linewidth=1.0, label=label)


def _scale(axes: Axes, axis: str, scale: Scale) -> None:
    """Set the scale; what has no positive value stays linear, because a logarithm cannot show it."""
    if scale == "linear":
        return
    values = _data_values(axes, axis)
    magnitudes = np.abs(values[np.isfinite(values) & (values != 0)])
    change = axes.set_xscale if axis == "x" else axes.set_yscale
    if scale == "symlog" and magnitudes.size:
        change("symlog", linthresh=max(float(magnitudes.min()), 1e-16 * float(magnitudes.max())))
    elif scale == "log" and (values > 0).any():
        change("log", nonpositive="mask")


def _data_values(axes: Axes, axis: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    place = 0 if axis == "x" else 1
    parts = [np.asarray(line.get_xydata(), dtype=np.float64)[:, place] for line in axes.lines]
    parts += [np.asarray(patch.get_path().vertices, dtype=np.float64)[:, place] for patch in axes.patches]
    return np.concatenate([np.empty(0), *parts])
