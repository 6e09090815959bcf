"""The figures of a study: all panels in one file, or each as a drawing inside a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from math import ceil, floor, log10
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as DrawnFigure
from matplotlib.ticker import FixedLocator, FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from hessmap.views.page import Drawing, inline_svg
from hessmap.views.plots.style import (
    FAINT,
    HESSIAN_COLOURS,
    INK,
    KIND_COLOURS,
    SERIES_COLOURS,
    dress,
    mathematics,
    new_figure,
    without_mathematics,
    write_figure,
)
from hessmap_research.runner.collection import Collection
from hessmap_research.runner.row import Row
from hessmap_research.runner.view import Cloud, Figure, Heatmap, Histogram, Limits, Lines, Mark, Plane, Scale
from hessmap_research.views.legends import NEUTRAL, place_legends
from hessmap_research.views.marks import draw_cloud, draw_heatmap, draw_histogram, draw_lines, draw_plane, series_looks
from hessmap_research.views.panels import Panel, curves, kind_label, kinds_of, shown_panels, sort_key

# So that several marks of a panel differ, also from its series; grey with dashes first.
MARK_STROKES = (
    (FAINT, (4.0, 3.0)),
    ("#8e7cc3", (1.0, 2.0)),
    ("#e69f00", (6.0, 2.0, 1.0, 2.0)),
    ("#56b4e9", (10.0, 3.0)),
)


def shades(opened: Sequence[Panel]) -> dict[str, str]:
    """One colour for each label of all panels, none of them that of a Hessian, a histogram or a cloud beside them.

    Nor that of a reference line, where enough are left. Where there are more labels than colours, those that no panel
    has together may share one.
    """
    drawn = [curves(panel.figure, panel.rows) for panel in opened if isinstance(panel.figure, Lines)]
    labels = list(dict.fromkeys(curve.label for some in drawn for curve in some if not curve.part))
    has_hessians = any(curve.part for some in drawn for curve in some) or any(panel.figure.part for panel in opened)
    taken = set(HESSIAN_COLOURS.values()) if has_hessians else set()
    taken.update(*(_colours_of_no_lines(panel) for panel in opened))
    free = [colour for colour in SERIES_COLOURS if colour not in taken]
    marked = _colours_of_marks(opened)
    unmarked = [colour for colour in free if colour not in marked]
    clouds = _cloud_shades(opened)
    for enough in (unmarked, free):
        if len(labels) <= len(enough):
            return clouds | dict(zip(labels, enough, strict=False))
    vectorised = [{curve.label for curve in some} for some in drawn]
    return clouds | (_reused(labels, vectorised, free) or _graded(labels))


def _colours_of_marks(opened: Sequence[Panel]) -> set[str]:
    """Those of the reference lines; that of a value of a field is the value's own."""
    numbers = [sum(not mark.by for mark in panel.figure.marks) for panel in opened]
    return {colour for colour, _ in MARK_STROKES[: max(numbers, default=0)]}


def _reused(labels: Sequence[str], vectorised: Sequence[set[str]], free: Sequence[str]) -> dict[str, str]:
    """The first colour for each label that no label beside it has; empty where they do not suffice.

    >>> _reused(["a", "b", "c"], [{"a", "b"}, {"b", "c"}], ["red", "blue"])
    {'a': 'red', 'b': 'blue', 'c': 'red'}
    """
    found: dict[str, str] = {}
    for label in labels:
        beside = {other for panel in vectorised if label in panel for other in panel}
        taken = {found[other] for other in beside if other in found}
        left = [colour for colour in free if colour not in taken]
        if not left:
            return {}
        found[label] = left[0]
    return found


def _cloud_shades(opened: Sequence[Panel]) -> dict[str, str]:
    """One colour for each kind of points of a field where panels have different kinds of it."""
    fields: dict[str, list[dict[str, str]]] = {}
    for figure, rows in ((panel.figure, panel.rows) for panel in opened):
        if isinstance(figure, Cloud) and figure.colour:
            kinds = {kind: kind_label(figure, kind) for kind in kinds_of(figure, rows)}
            fields.setdefault(figure.colour, []).append(kinds)
    taken = set(HESSIAN_COLOURS.values()) if any(panel.figure.part for panel in opened) else set()
    free = [colour for colour in KIND_COLOURS if colour not in taken]
    found: dict[str, str] = {}
    for parts in fields.values():
        named = {kind: label for part in parts for kind, label in part.items()}
        labels = [named[kind] for kind in sorted(named, key=sort_key)]
        if taken or any(len(part) < len(labels) for part in parts):
            found |= dict(zip(labels, free, strict=False)) if len(labels) <= len(free) else _graded(labels)
    return found


def _graded(labels: Sequence[str]) -> dict[str, str]:
    """More colours than can be told by name, from dark to light."""
    scale = colormaps["viridis"]
    return {label: to_hex(scale(0.92 * place / (len(labels) - 1))) for place, label in enumerate(labels)}


def _colours_of_no_lines(panel: Panel) -> tuple[str, ...]:
    """Measured and predicted density, or the one colour of a cloud of one kind."""
    if isinstance(panel.figure, Histogram):
        return SERIES_COLOURS[:2]
    return SERIES_COLOURS[:1] if isinstance(panel.figure, Cloud) and not panel.figure.colour else ()


_FEW_DECADES = 1.4  # up to here, or with one power of ten, a logarithmic axis has plain numbers at 1, 2 and 5
_HALF_A_DECADE = 0.5  # up to here at every digit
_FEW_PLACES = 12  # up to here a logarithmic axis over whole numbers has its ticks at them
_DIGIT = 0.02  # of such an axis: as wide as a digit of the numbers at its ticks
_LARGEST_PLAIN = 9999  # up to here powers of ten are plain numbers
_MARGIN = 0.05
_FAR_FROM_ZERO = 0.9  # least over largest value: beyond it an axis from zero would show one line


def set_scales(axes: Axes, figure: Figure) -> None:
    """Both axes as the figure wants them; to be called before reference lines are drawn."""
    _set_scale(axes, "x", figure.x_scale)
    _set_scale(axes, "y", figure.y_scale)
    if isinstance(figure, Heatmap | Plane):
        return
    values = _data_values(axes, "y")
    values = values[np.isfinite(values)]
    is_near_zero = values.size > 0 and 0 < values.min() < _FAR_FROM_ZERO * values.max()
    if axes.get_yscale() == "linear" and figure.y_limits is None and is_near_zero:
        _set_limits(axes, "y", (0.0, None))
    _set_ticks(axes, "x", figure.x_limits or (None, None))
    _set_ticks(axes, "y", figure.y_limits or (None, None))


def set_limits(axes: Axes, figure: Figure) -> None:
    """What the figure says of the ends of its axes; to be called after everything is drawn."""
    for name, limits in (("x", figure.x_limits), ("y", figure.y_limits)):
        if limits:
            _set_limits(axes, "x" if name == "x" else "y", limits)


def _set_limits(axes: Axes, name: Literal["x", "y"], limits: Limits) -> None:
    """The margin of an axis is a share of what the data span; where it starts far below them, of what it shows."""
    low, high = limits
    axis, place = (axes.xaxis, 0) if name == "x" else (axes.yaxis, 1)
    largest = float(axes.dataLim.max[place])
    if low is not None and high is None and axis.get_scale() == "linear" and largest > low:
        high = largest + _MARGIN * (largest - low)
    change = axes.set_xlim if name == "x" else axes.set_ylim
    change(low, high)


def _set_scale(axes: Axes, axis: Literal["x", "y"], scale: Scale) -> None:
    """Set the scale; what has no positive value stays linear, because a logarithm cannot show it."""
    if scale == "linear":
        return
    values = _data_values(axes, axis)
    magnitudes = np.abs(values[np.isfinite(values) & (values != 0)])
    change = axes.set_xscale if axis == "x" else axes.set_yscale
    if scale == "symlog" and values.size:
        least, largest = (float(magnitudes.min()), float(magnitudes.max())) if magnitudes.size else (1.0, 1.0)
        change("symlog", linthresh=max(least, 1e-16 * largest))
    elif scale == "log" and (values > 0).any():
        change("log", nonpositive="mask")


def _set_ticks(axes: Axes, name: Literal["x", "y"], limits: Limits) -> None:
    """Whole numbers for whole data, and on a short logarithmic axis numbers that stand apart."""
    axis = axes.xaxis if name == "x" else axes.yaxis
    if axis.have_units():  # words
        return
    values = _data_values(axes, name)
    values = values[np.isfinite(values)]
    if not values.size:
        return
    if axis.get_scale() == "linear":
        if (values == np.round(values)).all():
            axis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10], integer=True))
    elif axis.get_scale() == "symlog":
        if (values == np.round(values)).all() and np.abs(values).max() <= _LARGEST_PLAIN:
            axis.set_major_formatter(FormatStrFormatter("%g"))
    elif axis.get_scale() == "log":
        positive = values[values > 0]
        axis.set_minor_formatter(NullFormatter())
        low, high = sorted((limits[0] or positive.min(), limits[1] or positive.max()))
        places = np.unique(positive)
        if name == "x" and 1 < places.size <= _FEW_PLACES and all(map(_is_round, places)):
            axis.set_major_locator(FixedLocator(separate(places.tolist())))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FormatStrFormatter("%g"))
            return
        decades = log10(high / low)
        num_powers = floor(log10(high)) - ceil(log10(low)) + 1
        if decades < _FEW_DECADES or num_powers < 2:
            subs = (1.0, 2.0, 5.0) if decades > _HALF_A_DECADE else tuple(range(1, 10))
            axis.set_major_locator(LogLocator(subs=subs))
        if decades < _FEW_DECADES or num_powers < 2 or (low >= 1 and high <= _LARGEST_PLAIN):
            axis.set_major_formatter(FormatStrFormatter("%g"))


def separate(places: list[float]) -> list[float]:
    """Those of the ascending numbers that stand apart on a logarithmic axis, the first and the last among them.

    >>> separate([1, 2, 3, 4, 6, 8, 12, 24])
    [1, 2, 3, 4, 6, 8, 12, 24]
    >>> separate([10, 100, 110, 1000])
    [10, 100, 1000]
    """
    whole = log10(places[-1] / places[0])
    found = places[:1]
    for place in places[1:-1]:
        before, after = log10(place / found[-1]) / whole, log10(places[-1] / place) / whole
        if before >= _width(place) and after >= _width(places[-1]):
            found.append(place)
    return [*found, places[-1]]


def _width(place: float) -> float:
    return _DIGIT * (1 + len(f"{place:g}"))


def _is_round(place: float) -> bool:
    """Whether a number was chosen and not counted: at most two digits before zeros, or a power of two."""
    if place != round(place):
        return False
    number = int(place)
    return number & (number - 1) == 0 or len(str(number).rstrip("0")) <= 2


def _data_values(axes: Axes, axis: Literal["x", "y"]) -> NDArray[np.float64]:
    place = 0 if axis == "x" else 1
    parts = [np.asarray(line.get_xydata(), dtype=np.float64)[:, place] for line in axes.lines]
    parts += [np.asarray(patch.get_path().vertices, dtype=np.float64)[:, place] for patch in axes.patches]
    return np.concatenate([np.empty(0), *parts])


_MAX_COLUMNS = 3
_PANEL_INCHES = (4.4, 3.3)
_IMAGE_INCHES = 2.0  # the height of rows of images


def study_figure(collection: Collection, panel: int | None = None) -> DrawnFigure:
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
