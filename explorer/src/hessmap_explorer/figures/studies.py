"""The panels of a study as figures of a browser: every point knows the cases behind it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from hessmap.views.plots.figure_data import (
    MOST_POINTS,
    Axis,
    FigureData,
    Floats,
    Kind,
    Line,
    Trace,
    evenly,
    series,
    thinning_note,
)
from hessmap.views.plots.style import HESSIAN_COLOURS, SERIES_COLOURS, without_mathematics
from hessmap_research.runner.collection import Collection
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.row import Row
from hessmap_research.runner.view import Cloud, Heatmap, Histogram, Lines, Plane
from hessmap_research.views.legends import how_to_read, reading_text
from hessmap_research.views.marks import histogram_density, matrix_over_fields, slope_line, value_limits
from hessmap_research.views.panels import (
    Curve,
    Panel,
    curves,
    flat_values,
    kind_label,
    kinds_of,
    point_kinds,
    shown_panels,
)
from hessmap_research.views.table import words

_KINDS: dict[str, Kind] = {"line": "line", "dashed": "dashed", "points": "points"}
_MOST_MARKS = 1200  # points of a figure: a browser draws and zooms them in a fraction of a second
_MOST_KEYS = 20  # cases behind one point that a click offers
Drawn = tuple[tuple[Trace, ...], str, str]  # traces, and what the axes are called where the study does not say


def study_figures(collection: Collection) -> list[FigureData]:
    """Every panel of a study that is shown."""
    return [panel_data(panel) for panel in shown_panels(collection)]


def panel_data(panel: Panel) -> FigureData:
    """A panel: the kind of figure decides the traces, the rest is the same for all."""
    figure = panel.figure
    traces, x_label, y_label = _panel_traces(panel)
    note = reading_text(how_to_read(figure, curves(figure, panel.rows))) if isinstance(figure, Lines) else ""
    lines = tuple(line for mark in figure.marks for line in _mark_lines(mark, panel.rows))
    square = isinstance(figure, Plane) or (isinstance(figure, Heatmap) and bool(figure.row_labels))
    is_matrix = isinstance(figure, Heatmap) and not figure.x
    numbers = [_magnitudes(chain.from_iterable(getattr(trace, axis) for trace in traces)) for axis in "xy"]
    x_scale, y_scale = (
        scale if scale == "linear" or found.size else "linear"
        for scale, found in zip((figure.x_scale, figure.y_scale), numbers, strict=True)
    )
    return FigureData(
        panel.title,
        Axis(figure.x_label or x_label, x_scale, figure.x_limits, _category_names(traces, "x")),
        Axis(figure.y_label or y_label, y_scale, figure.y_limits, is_reversed=is_matrix),
        traces,
        lines,
        note=" ".join(filter(None, (note, _thinning_text(panel, traces)))),
        is_square=square,
    )


def _panel_traces(panel: Panel) -> Drawn:
    match panel.figure:
        case Lines() as figure:
            return _lines(panel, figure), words(figure.x), ""
        case Heatmap() as figure:
            return _heatmap(figure, panel.rows)
        case Histogram() as figure:
            return _histogram(figure, panel.rows)
        case Cloud() as figure:
            return _cloud(figure, panel.rows)
        case Plane() as figure:
            return _plane(figure, panel.rows), "", ""
    return (), "", ""


def _lines(panel: Panel, figure: Lines) -> tuple[Trace, ...]:
    """The curves, then lines of growth to compare with.

    Blue and orange are left to the Hessians where the panel names one; one Hessian twice, as of two activations, has
    two other colours.
    """
    drawn = curves(figure, panel.rows)
    parts = {curve.colour: curve.part for curve in drawn}
    alone = {part for part in parts.values() if part and list(parts.values()).count(part) == 1}
    first = len(HESSIAN_COLOURS) - 1 if any(parts.values()) or figure.part else 0
    traces = []
    for curve in drawn:
        part = parts[curve.colour]
        colour = part if part in alone else series(first + curve.colour % (len(SERIES_COLOURS) - first))
        traces.append(_curve_trace(curve, colour))
    for slope in figure.slopes:
        x, y = slope_line(figure, slope, panel.rows)
        if x.size:
            traces.append(Trace(slope.label, "dashed", x, y, colour="faint"))
    return tuple(traces)


def _curve_trace(curve: Curve, colour: str) -> Trace:
    chosen = evenly(len(curve.x), _MOST_MARKS // 3 if curve.style == "points" else MOST_POINTS)
    low, high = (band[chosen] if curve.has_band else () for band in (curve.low, curve.high))
    groups = curve.rows if len(curve.rows) == 1 else [curve.rows[place] for place in chosen]
    keys = [_keys(group) for group in groups]
    x = [_plain(value) if isinstance(value, str) else value for value in (curve.x[place] for place in chosen)]
    return Trace(curve.label, _KINDS[curve.style], x, curve.y[chosen], low, high, colour, keys)


def _keys(rows: Sequence[Row]) -> str:
    """The cases behind a point, one in a line."""
    return "\n".join(case_key(row.case) for row in rows[:_MOST_KEYS])


def _heatmap(figure: Heatmap, rows: Sequence[Row]) -> Drawn:
    if figure.row_labels:
        matrix = rows[0].array(figure.value)
        shown = Trace(", ".join(figure.row_labels), "heatmap", z=matrix, palette="grey", keys=[_keys(rows[:1])])
        return (shown,), "", ""
    if figure.x:
        matrix, xs, ys = matrix_over_fields(figure, rows)
        x, y = [str(value) for value in xs], [str(value) for value in ys]
    else:
        matrix = np.mean([row.array(figure.value) for row in rows], axis=0)
        matrix, x, y = _thinned_matrix(matrix)
    low, high = figure.limits or value_limits(matrix, is_symmetric=figure.colours == "diverging")
    trace = Trace("", "heatmap", x, y, [low], [high], z=matrix, palette=figure.colours, keys=[_keys(rows)])
    return (trace,), words(figure.x), words(figure.y)


def _thinned_matrix(matrix: Floats) -> tuple[Floats, Any, Any]:
    """A matrix of at most 400 rows and columns, whose numbers count from 1."""
    lines, columns = (evenly(size, 400) for size in matrix.shape)
    return matrix[np.ix_(lines, columns)], columns + 1, lines + 1


def _histogram(figure: Histogram, rows: Sequence[Row]) -> Drawn:
    density, edges = histogram_density(figure, rows)
    measured = Trace("measured", "steps", edges, [*density, density[-1]], keys=[_keys(rows)])
    if not figure.density:
        return (measured,), words(figure.values), "density"
    at, predicted = rows[0].array(figure.density_at), rows[0].array(figure.density)
    chosen = evenly(at.size)
    return (
        (measured, Trace("predicted", "line", at[chosen], predicted[chosen], colour="series1")),
        words(figure.values),
        "density",
    )


def _cloud(figure: Cloud, rows: Sequence[Row]) -> Drawn:
    parts = [(flat_values(row, figure.x), flat_values(row, figure.y)) for row in rows]
    x, y = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    kinds = np.concatenate([point_kinds(row, figure) for row in rows])
    keys = np.concatenate([np.full(part[0].size, place) for place, part in enumerate(parts)])
    spelled = [case_key(row.case) for row in rows]
    names = kinds_of(figure, rows)
    most = max(50, _MOST_MARKS // max(1, len(names)))
    traces: list[Trace] = []
    for place, kind in enumerate(names):
        found = np.flatnonzero(kinds == kind)
        chosen = found[evenly(found.size, most)]
        behind = [spelled[number] for number in keys[chosen]]
        label = kind_label(figure, kind)
        traces.append(
            Trace(label, "points", x[chosen], y[chosen], colour=series(place), keys=behind, in_legend=bool(label))
        )
    if figure.diagonal and x.size:
        low = figure.x_limits[0] if figure.x_limits else None
        ends = [float(min(x.min(), y.min())) if low is None else low, float(max(x.max(), y.max()))]
        traces.append(Trace(figure.diagonal, "line", ends, ends, colour="faint"))
    return tuple(traces), words(figure.x), words(figure.y)


def _plane(figure: Plane, rows: Sequence[Row]) -> tuple[Trace, ...]:
    """A part of the plane, of the first row: two pictures of a plane cannot be averaged."""
    row = rows[0]
    left, right, bottom, top = row.array(figure.box)
    traces: list[Trace] = []
    if figure.labels:
        labels = row.array(figure.labels)
        y, x = (
            np.linspace(*ends, size) for ends, size in zip(((bottom, top), (left, right)), labels.shape, strict=True)
        )
        traces.append(Trace("", "heatmap", x, y, z=labels, palette="classes", keys=[_keys(rows[:1])]))
    if figure.points:
        points = row.array(figure.points)
        kinds = row.array(figure.kinds).astype(int) if figure.kinds else np.zeros(len(points), dtype=int)
        for kind in np.unique(kinds):
            x, y = points[kinds == kind].T
            label = figure.point_label or f"class {kind}"
            traces.append(Trace(label, "points", x, y, colour=series(int(kind)), in_legend=bool(figure.point_label)))
    if figure.arrows:
        arrows = row.array(figure.arrows)
        gap = np.full(len(arrows), np.nan)
        x, y = (np.stack([arrows[:, side], arrows[:, side + 2], gap], axis=1).ravel() for side in (0, 1))
        traces.append(Trace("", "segments", x, y, colour="faint", in_legend=False))
        for label, colour, side in zip(figure.arrow_labels, (2, 1), (0, 2), strict=True):
            ends = arrows[:, side], arrows[:, side + 1]
            traces.append(Trace(label, "points", *ends, colour=series(colour), in_legend=bool(label)))
    if figure.rings:
        x, y = row.array(figure.rings).reshape(-1, 2).T
        traces.append(Trace(figure.ring_label or "rings", "points", x, y, colour="ink", keys=[_keys(rows[:1])]))
    return tuple(traces)


def _mark_lines(mark: Any, rows: Sequence[Row]) -> list[Line]:
    places = sorted({row.number(mark.at) for row in rows if mark.at in row}) if isinstance(mark.at, str) else [mark.at]
    return [Line(place, mark.axis, mark.label if number == 0 else "") for number, place in enumerate(places)]


def _magnitudes(values: Any) -> Floats:
    """The positive numbers among values."""
    found = [value for value in values if isinstance(value, int | float) and value > 0]
    return np.array(found, dtype=np.float64)


def _category_names(traces: Sequence[Trace], axis: str) -> tuple[str, ...]:
    """The words along an axis, in the order in which they come; empty where it has numbers."""
    values = list(chain.from_iterable(getattr(trace, axis) for trace in traces if trace.kind != "heatmap"))
    return tuple(dict.fromkeys(map(str, values))) if any(isinstance(value, str) for value in values) else ()


def _thinning_text(panel: Panel, traces: Sequence[Trace]) -> str:
    if isinstance(panel.figure, Lines):
        drawn = zip(traces, curves(panel.figure, panel.rows), strict=False)
        return next(filter(None, (thinning_note(len(trace.x), len(curve.x)) for trace, curve in drawn)), "")
    if not isinstance(panel.figure, Cloud):
        return ""
    shown = sum(len(trace.x) for trace in traces if trace.kind == "points")
    return thinning_note(shown, sum(flat_values(row, panel.figure.x).size for row in panel.rows))


def _plain(text: str) -> str:
    """Text as a page shows it: matplotlib's mathematics and escapes are taken off."""
    return without_mathematics(text).replace(r"\$", "$")
