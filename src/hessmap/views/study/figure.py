"""The figures of a study: all panels in one file, or each as a drawing inside a page."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hessmap.runs.collection import Collection
from hessmap.runs.row import Row
from hessmap.runs.view import Cloud, Heatmap, Histogram, Lines, Mark, Plane, Scale
from hessmap.views.page import Drawing, inline_svg
from hessmap.views.plots.style import FAINT, INK, dress, mathematics, new_figure, write_figure
from hessmap.views.study.marks import draw_cloud, draw_heatmap, draw_histogram, draw_lines, draw_plane
from hessmap.views.study.panels import Panel, panels

_MAX_COLUMNS = 3
_PANEL_INCHES = (4.4, 3.3)
_DASHES = ((4.0, 3.0), (1.0, 2.0), (6.0, 2.0, 1.0, 2.0), (10.0, 3.0))  # so that several marks of a panel differ


def study_figure(collection: Collection) -> Figure:
    """All panels of a study in one matplotlib figure."""
    opened = panels(collection.study.view.figures, collection.stored.rows)
    num_columns = max(1, min(_MAX_COLUMNS, len(opened)))
    num_lines = max(1, -(-len(opened) // num_columns))
    width, height = _PANEL_INCHES
    figure = new_figure(width * num_columns, height * num_lines)
    for place, panel in enumerate(opened, start=1):
        draw(figure.add_subplot(num_lines, num_columns, place), panel, has_title=True)
    return figure


def write_study_figure(collection: Collection, path: Path) -> Path:
    """Write the figure of a study as PNG, SVG or PDF, by the suffix of the path; equal records give equal files."""
    return write_figure(study_figure(collection), path, salt=collection.study.name)


def inline_drawings(collection: Collection) -> list[Drawing]:
    """Every panel as a drawing of its own, so that a narrow page shows them one below the other."""
    drawings: list[Drawing] = []
    for place, panel in enumerate(panels(collection.study.view.figures, collection.stored.rows)):
        figure = new_figure(*_PANEL_INCHES)
        draw(figure.add_subplot(), panel)
        drawings.append(Drawing(panel.title, inline_svg(figure, salt=f"panel{place}")))
    return drawings


def draw(axes: Axes, panel: Panel, has_title: bool = False) -> None:
    """Draw a panel: the kind of figure decides the marks, the rest is the same for all."""
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
    _label(axes, panel, panel.drawn_title if has_title else "")


def _label(axes: Axes, panel: Panel, title: str) -> None:
    dress(axes, title)
    axes.set_xlabel(mathematics(panel.figure.x_label) or axes.get_xlabel(), fontsize=9, color=INK)
    axes.set_ylabel(mathematics(panel.figure.y_label) or axes.get_ylabel(), fontsize=9, color=INK)
    if isinstance(panel.figure, Heatmap | Plane):
        axes.grid(visible=False)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def _draw_mark(axes: Axes, mark: Mark, dashes: tuple[float, ...], rows: tuple[Row, ...]) -> None:
    """A line at a number, or at each different value that a name has in the rows."""
    places = sorted({row.number(mark.at) for row in rows if mark.at in row}) if isinstance(mark.at, str) else [mark.at]
    line = axes.axvline if mark.axis == "x" else axes.axhline
    for number, place in enumerate(places):
        label = mathematics(mark.label) if mark.label and number == 0 else "_nolegend_"
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


def _data_values(axes: Axes, axis: str) -> NDArray[np.float64]:
    place = 0 if axis == "x" else 1
    parts = [np.asarray(line.get_xydata(), dtype=np.float64)[:, place] for line in axes.lines]
    parts += [np.asarray(patch.get_path().vertices, dtype=np.float64)[:, place] for patch in axes.patches]
    return np.concatenate([np.empty(0), *parts])
