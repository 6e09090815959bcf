"""The figures of a study: all panels in one file, or each as a drawing inside a page."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hessmap.runs.collection import Collection
from hessmap.runs.row import Row
from hessmap.runs.view import Cloud, Heatmap, Histogram, Lines, Mark, Plane, Scale
from hessmap.views.interactive.studies import panel_data
from hessmap.views.page import Drawing, inline_svg
from hessmap.views.plots.style import FAINT, INK, dress, mathematics, new_figure, without_mathematics, write_figure
from hessmap.views.study.marks import draw_cloud, draw_heatmap, draw_histogram, draw_lines, draw_plane
from hessmap.views.study.panels import Panel, panels

_MAX_COLUMNS = 3
_PANEL_INCHES = (4.4, 3.3)
_IMAGE_INCHES = 2.0  # the height of rows of images
_SIGNS_AN_INCH = 14  # of a legend
_MOST_INSIDE = 5  # a longer legend stands below its panel and not on the data
_DASHES = ((4.0, 3.0), (1.0, 2.0), (6.0, 2.0, 1.0, 2.0), (10.0, 3.0))  # so that several marks of a panel differ


def study_figure(collection: Collection, panel: int | None = None) -> Figure:
    """All panels of a study in one matplotlib figure, or one of them, counted from 0."""
    opened = panels(collection.study.view.figures, collection.stored.rows)
    opened = opened if panel is None else opened[panel : panel + 1]
    num_columns = max(1, min(_MAX_COLUMNS, len(opened)))
    num_lines = max(1, -(-len(opened) // num_columns))
    width, height = _PANEL_INCHES
    if all(isinstance(panel.figure, Heatmap) and panel.figure.row_labels for panel in opened):
        height = _IMAGE_INCHES
    figure = new_figure(width * num_columns, height * num_lines)
    drawn = [figure.add_subplot(num_lines, num_columns, place) for place in range(1, len(opened) + 1)]
    for axes, shown in zip(drawn, opened, strict=True):
        draw(axes, shown, has_title=True)
    _share_legend(figure, drawn)
    return figure


def _share_legend(figure: Figure, drawn: list[Axes]) -> None:
    """One legend below all panels where they have the same entries, or some of those of one panel."""
    legends = [axes.get_legend_handles_labels() for axes in drawn if axes.get_legend() is not None]
    if len(legends) < 2:
        return
    handles, labels = max(legends, key=lambda legend: len(legend[1]))
    known = {label: _look(handle) for handle, label in zip(handles, labels, strict=True)}
    entries = [(label, _look(handle)) for legend in legends for handle, label in zip(*legend, strict=True)]
    if any(known.get(label) != look for label, look in entries):
        return
    for axes in drawn:
        legend = axes.get_legend()
        if legend is not None:
            legend.remove()
    style: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": INK}
    widest = max(len(label) for label in labels) + 8
    num_columns = max(1, min(4, len(labels), int(_SIGNS_AN_INCH * figure.get_figwidth() / widest)))
    figure.legend(handles, labels, loc="outside lower center", ncols=num_columns, **style)


def _look(handle: Any) -> tuple[str, ...]:
    """What tells one entry of a legend from another."""
    names = ("get_color", "get_linestyle", "get_marker", "get_facecolor")
    return tuple(str(getattr(handle, name)()) for name in names if hasattr(handle, name))


def write_study_figure(collection: Collection, path: Path) -> Path:
    """Write the figure of a study as PNG, SVG or PDF, by the suffix of the path; equal records give equal files."""
    return write_figure(study_figure(collection), path, salt=collection.study.name)


def inline_drawings(collection: Collection, interactive: bool = False) -> list[Drawing]:
    """Every panel as a drawing of its own, so that a narrow page shows them one below the other."""
    drawings: list[Drawing] = []
    for place, panel in enumerate(panels(collection.study.view.figures, collection.stored.rows)):
        figure = new_figure(*_PANEL_INCHES)
        draw(figure.add_subplot(), panel)
        data = panel_data(panel) if interactive else None
        title = without_mathematics(panel.title)
        drawings.append(Drawing.of(title, inline_svg(figure, salt=f"panel{place}"), data))
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
    if isinstance(panel.figure, Heatmap) and panel.figure.row_labels:
        axes.spines[["left", "bottom"]].set_visible(False)
    num_entries = len(axes.get_legend_handles_labels()[1])
    if num_entries:
        style: dict[str, Any] = {"frameon": False, "fontsize": 8, "labelcolor": INK}
        if num_entries > _MOST_INSIDE:
            style |= {"loc": "upper left", "bbox_to_anchor": (0.0, -0.18), "ncols": 2}
        axes.legend(**style)


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
