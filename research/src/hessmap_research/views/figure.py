"""The figures of a study: all panels in one file, or each as a drawing inside a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hessmap.views.page import Drawing, inline_svg
from hessmap.views.plots.style import INK, dress, mathematics, new_figure, without_mathematics, write_figure
from hessmap_research.runner.collection import Collection
from hessmap_research.runner.row import Row
from hessmap_research.runner.view import Cloud, Heatmap, Histogram, Lines, Mark, Plane
from hessmap_research.views.axis_scales import set_limits, set_scales
from hessmap_research.views.colours import MARK_STROKES, shades
from hessmap_research.views.legends import NEUTRAL, place_legends
from hessmap_research.views.line_marks import draw_lines, series_looks
from hessmap_research.views.marks import draw_cloud, draw_heatmap, draw_histogram, draw_plane
from hessmap_research.views.panels import Panel, curves, shown_panels

_MAX_COLUMNS = 3
_PANEL_INCHES = (4.4, 3.3)
_IMAGE_INCHES = 2.0  # the height of rows of images


def study_figure(collection: Collection, panel: int | None = None) -> Figure:
    """The shown panels of a study in one matplotlib figure, or one of them, counted from 0."""
    opened = shown_panels(collection)
    opened = opened if panel is None else opened[panel : panel + 1]
    num_columns = _num_columns(len(opened), collection.study.view.panels_in_a_row)
    num_lines = max(1, -(-len(opened) // num_columns))
    width, height = _PANEL_INCHES
    if all(isinstance(panel.figure, Heatmap) and panel.figure.row_labels for panel in opened):
        height = _IMAGE_INCHES
    figure = new_figure(width * num_columns, height * num_lines)
    drawn = [figure.add_subplot(num_lines, num_columns, place) for place in range(1, len(opened) + 1)]
    colours = shades(opened)
    for axes, shown in zip(drawn, opened, strict=True):
        draw(axes, shown, has_title=True, colours=colours)
    place_legends(figure, drawn, num_columns)
    return figure


def _num_columns(num_panels: int, wanted: int | None) -> int:
    """Three in a row, or as many as the study wants; four panels are a square."""
    if wanted is None:
        wanted = 2 if num_panels == 4 else _MAX_COLUMNS
    return max(1, min(wanted, num_panels))


def write_study_figure(collection: Collection, path: Path) -> Path:
    """Write the figure of a study as PNG, SVG or PDF, by the suffix of the path; equal records give equal files."""
    return write_figure(study_figure(collection), path, salt=collection.study.name)


def inline_drawings(collection: Collection) -> list[Drawing]:
    """Every shown panel as a drawing of its own, so that a narrow page shows them one below the other."""
    drawings: list[Drawing] = []
    for place, panel in enumerate(shown_panels(collection)):
        figure = new_figure(*_PANEL_INCHES)
        axes = figure.add_subplot()
        draw(axes, panel)
        place_legends(figure, [axes], 1)
        title = without_mathematics(panel.title)
        drawings.append(Drawing(title, inline_svg(figure, salt=f"panel{place}")))
    return drawings


def draw(axes: Axes, panel: Panel, has_title: bool = False, colours: Mapping[str, str] | None = None) -> None:
    """Draw a panel but its legend: the kind of figure decides the marks, the rest is the same for all.

    ``colours`` are those of labels that have one colour in all panels of a figure.
    """
    figure = panel.figure
    match figure:
        case Lines():
            draw_lines(axes, figure, panel.rows, colours or {})
        case Heatmap():
            draw_heatmap(axes, figure, panel.rows)
        case Histogram():
            draw_histogram(axes, figure, panel.rows)
        case Cloud():
            draw_cloud(axes, figure, panel.rows, colours or {})
        case Plane():
            draw_plane(axes, figure, panel.rows)
    set_scales(axes, figure)
    shades_of_marks = cycle(colour for colour, _ in MARK_STROKES)
    for mark, (_, dashes) in zip(figure.marks, cycle(MARK_STROKES), strict=False):
        if mark.by:
            _draw_marks_of_values(axes, mark, dashes, panel, colours or {})
        else:
            _draw_mark(axes, mark, next(shades_of_marks), dashes, panel.rows)
    set_limits(axes, figure)
    _label(axes, panel, panel.drawn_title if has_title else "")


def _label(axes: Axes, panel: Panel, title: str) -> None:
    dress(axes, title)
    axes.set_xlabel(mathematics(panel.figure.x_label) or axes.get_xlabel(), fontsize=9, color=INK)
    axes.set_ylabel(mathematics(panel.figure.y_label) or axes.get_ylabel(), fontsize=9, color=INK)
    if isinstance(panel.figure, Heatmap | Plane):
        axes.grid(visible=False)
    if isinstance(panel.figure, Heatmap) and panel.figure.row_labels:
        axes.spines[["left", "bottom"]].set_visible(False)


def _draw_mark(axes: Axes, mark: Mark, colour: str, dashes: tuple[float, ...], rows: tuple[Row, ...]) -> None:
    """A line at a number, or at each different value that a name has in the rows."""
    places = sorted({row.number(mark.at) for row in rows if mark.at in row}) if isinstance(mark.at, str) else [mark.at]
    line = axes.axvline if mark.axis == "x" else axes.axhline
    for number, place in enumerate(places):
        label = mathematics(mark.label) if mark.label and number == 0 else "_nolegend_"
        line(place, color=colour, linestyle=(0, dashes), linewidth=1.0, label=label)


def _draw_marks_of_values(
    axes: Axes, mark: Mark, dashes: tuple[float, ...], panel: Panel, colours: Mapping[str, str]
) -> None:
    """A mark of each value of a field, in the colour of its series; what the stroke means, the legend says once."""
    if not isinstance(panel.figure, Lines):
        return
    drawn = curves(panel.figure, panel.rows)
    looks = series_looks(drawn, colours)
    shades_of = {curve.rows[0][0][mark.by]: looks[curve.colour].colour for curve in drawn}
    for value, colour in shades_of.items():
        rows = tuple(row for row in panel.rows if row[mark.by] == value)
        _draw_mark(axes, replace(mark, label=""), colour, dashes, rows)
    if mark.label and any(mark.at in row for row in panel.rows if isinstance(mark.at, str)):
        axes.plot([], [], color=NEUTRAL, linestyle=(0, dashes), linewidth=1.0, label=mathematics(mark.label))
