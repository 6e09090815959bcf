"""What each kind of figure puts on its axes: colours, densities, clouds, parts of the plane, lines.

Lines are series over a field: how each curve is drawn so that all are seen, also where they lie on each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from hessmap.views.plots.style import (
    FAINT,
    HESSIAN_COLOURS,
    INK,
    KIND_COLOURS,
    PAPER,
    kind_colour,
    literal,
    marker,
    mathematics,
    series_colour,
    stroke,
)
from hessmap_research.runner.row import Row
from hessmap_research.runner.view import Cloud, Heatmap, Histogram, Lines, Plane, Slope
from hessmap_research.views.legends import explain_strokes, how_to_read
from hessmap_research.views.panels import Curve, curves, flat_values, kind_label, kinds_of, matches, point_kinds
from hessmap_research.views.table import words

Floats = NDArray[np.float64]
_MANY = 12  # more rows of a heatmap than this have small labels
_CROWD = 300  # more points of a cloud than this are drawn in turns
_NUM_TURNS = 25
_FEW = 60  # more points than this are thinned where they lie close
_APART = 0.022  # of the diagonal of a panel: markers of a thinned curve
_SAME = 0.008  # of what a panel shows: closer than this two curves lie on each other
_MOST_SERIES = 6  # that are told apart by sizes where they lie on each other
_MOST_LEVELS = 3
_SLOPE_DASHES = ((8.0, 3.0), (2.0, 2.0), (8.0, 2.0, 2.0, 2.0))


def draw_heatmap(axes: Axes, figure: Heatmap, rows: Sequence[Row]) -> None:
    """A matrix, or a number over two fields, as colours."""
    if figure.row_labels:
        _draw_images(axes, figure, rows)
        return
    extent = None
    if figure.x:
        matrix, xs, ys = matrix_over_fields(figure, rows)
        axes.set_xticks(range(len(xs)), [literal(x) for x in xs])
        axes.set_yticks(range(len(ys)), [literal(y) for y in ys], fontsize=8.5 if len(ys) <= _MANY else 6.5)
    else:
        matrix = np.mean([row.array(figure.value) for row in rows], axis=0)
        extent = (0.5, matrix.shape[1] + 0.5, matrix.shape[0] + 0.5, 0.5)  # rows and columns count from 1
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=2))
    low, high = figure.limits or value_limits(matrix, is_symmetric=figure.colours == "diverging")
    colours = "viridis" if figure.colours == "sequential" else "RdBu_r"
    style: dict[str, Any] = {"cmap": colours, "aspect": "auto", "interpolation": "nearest", "extent": extent}
    image = axes.imshow(matrix, vmin=low, vmax=high, **style)
    axes.get_figure(root=True).colorbar(image, ax=axes)  # type: ignore[union-attr]
    axes.set_xlabel(literal(words(figure.x)))
    axes.set_ylabel(literal(words(figure.y)))


def _draw_images(axes: Axes, figure: Heatmap, rows: Sequence[Row]) -> None:
    """Rows of images as they are, of the first row: a mean of images is none."""
    matrix = rows[0].array(figure.value)
    low, high = figure.limits or value_limits(matrix, is_symmetric=False)
    axes.imshow(matrix, vmin=low, vmax=high, cmap="gray_r", aspect="equal", interpolation="nearest")
    height = len(matrix) / len(figure.row_labels)
    places = [height * (place + 0.5) - 0.5 for place in range(len(figure.row_labels))]
    axes.set_yticks(places, [literal(label) for label in figure.row_labels])
    for place in range(1, len(figure.row_labels)):
        axes.axhline(height * place - 0.5, color=PAPER, linewidth=4.0)
    axes.set_xticks([])


def matrix_over_fields(figure: Heatmap, rows: Sequence[Row]) -> tuple[Floats, list[Any], list[Any]]:
    """The mean of the value at each pair of the two fields, nan where there is none; and the values of the fields."""
    xs, ys = (sorted({row[name] for row in rows}) for name in (figure.x, figure.y))
    sums, counts = np.zeros((len(ys), len(xs))), np.zeros((len(ys), len(xs)))
    for row in rows:
        place = ys.index(row[figure.y]), xs.index(row[figure.x])
        sums[place] += row.number(figure.value)
        counts[place] += 1
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0), xs, ys


def value_limits(matrix: Floats, is_symmetric: bool) -> tuple[float, float]:
    """From the smallest to the largest value, or as far below zero as above it."""
    low, high = float(np.nanmin(matrix)), float(np.nanmax(matrix))
    return (-max(-low, high), max(-low, high)) if is_symmetric else (low, high)


def histogram_density(figure: Histogram, rows: Sequence[Row]) -> tuple[Floats, Floats]:
    """The density of the measured values, and the edges of its bins.

    It is of all values, also of those outside the limits, so that it can be compared with the prediction.
    """
    values = np.concatenate([row.array(figure.values).ravel() for row in rows])
    low, high = figure.x_limits or (None, None)
    ends = (values.min() if low is None else low, values.max() if high is None else high)
    counts, edges = np.histogram(values, bins=figure.bins, range=ends)
    return counts / (values.size * np.diff(edges)), edges


def draw_histogram(axes: Axes, figure: Histogram, rows: Sequence[Row]) -> None:
    """The density of measured values with the predicted density over it."""
    density, edges = histogram_density(figure, rows)
    axes.stairs(density, edges, fill=True, color=series_colour(0), alpha=0.55, label="measured")
    if figure.density:
        at, predicted = rows[0].array(figure.density_at), rows[0].array(figure.density)
        axes.plot(at, predicted, color=series_colour(1), linewidth=1.5, label="predicted")
    axes.set_xlabel(literal(words(figure.values)))
    axes.set_ylabel("density")


def draw_cloud(axes: Axes, figure: Cloud, rows: Sequence[Row], colours: Mapping[str, str]) -> None:
    """Points of two quantities, coloured by a third; of a crowd some of each kind in turn, so that none covers all."""
    x, y = (np.concatenate([flat_values(row, name) for row in rows]) for name in (figure.x, figure.y))
    kinds = np.concatenate([point_kinds(row, figure) for row in rows])
    found = kinds_of(figure, rows)
    for turn in range(_NUM_TURNS if x.size > _CROWD else 1):
        for place, kind in enumerate(found):
            chosen = np.flatnonzero(kinds == kind)
            chosen = chosen[turn::_NUM_TURNS] if x.size > _CROWD else chosen
            label = kind_label(figure, kind)
            shape = "o" if label in colours else marker(place // len(KIND_COLOURS))
            colour = colours.get(label, kind_colour(place))
            named = literal(label) if label and turn == 0 else None
            axes.plot(x[chosen], y[chosen], shape, color=colour, markersize=3.5, label=named)
    if figure.diagonal:
        low = figure.x_limits[0] if figure.x_limits else None
        ends = [float(min(x.min(), y.min())) if low is None else low, float(max(x.max(), y.max()))]
        axes.plot(ends, ends, "-", color=FAINT, linewidth=1.0, zorder=1, label=literal(figure.diagonal))
    axes.set_xlabel(literal(words(figure.x)))
    axes.set_ylabel(literal(words(figure.y)))


def draw_plane(axes: Axes, figure: Plane, rows: Sequence[Row]) -> None:
    """A part of the plane, of the first row: two pictures of a plane cannot be averaged."""
    row = rows[0]
    left, right, bottom, top = row.array(figure.box)
    if figure.labels:
        labels = row.array(figure.labels)
        count = int(labels.max()) + 1
        shades = ListedColormap([series_colour(place) for place in range(count)])
        axes.imshow(
            labels, origin="lower", extent=(left, right, bottom, top), cmap=shades, alpha=0.3,
            vmin=-0.5, vmax=count - 0.5, interpolation="nearest",
        )  # fmt: skip
    if figure.points:
        points = row.array(figure.points)
        kinds = row.array(figure.kinds).astype(int) if figure.kinds else np.zeros(len(points), dtype=int)
        axes.scatter(points[:, 0], points[:, 1], s=4, c=[series_colour(kind) for kind in kinds])
        _name_points(axes, figure.point_label, series_colour(0))
    if figure.arrows:
        arrows = row.array(figure.arrows)
        axes.add_collection(LineCollection(list(arrows.reshape(-1, 2, 2)), colors=FAINT, linewidths=0.7))
        axes.scatter(arrows[:, 0], arrows[:, 1], s=7, c=series_colour(2), zorder=3)
        axes.scatter(arrows[:, 2], arrows[:, 3], s=7, c=series_colour(1), zorder=3)
        for label, colour in zip(figure.arrow_labels, (2, 1), strict=True):
            _name_points(axes, label, series_colour(colour))
    if figure.rings:
        rings = row.array(figure.rings).reshape(-1, 2)
        axes.scatter(rings[:, 0], rings[:, 1], s=60, facecolors="none", edgecolors=INK, linewidths=1.6, zorder=4)
        _name_points(axes, figure.ring_label, "none", edge=INK)
    axes.set_aspect("equal")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)


def _name_points(axes: Axes, label: str, colour: str, edge: str = "none") -> None:
    """A line of the legend for points that a plane shows."""
    if label:
        style: dict[str, Any] = {"markerfacecolor": colour, "markeredgecolor": edge if edge != "none" else colour}
        axes.plot([], [], "o", markersize=5, label=literal(label), **style)


@dataclass(frozen=True)
class Look:
    """Of a series: its colour, and the how manyth of its panel it is with that colour."""

    colour: str
    place: int = 0
    is_shared: bool = False


def draw_lines(axes: Axes, figure: Lines, rows: Sequence[Row], colours: Mapping[str, str]) -> None:
    """Predictions as lines, measurements as points, bounds dashed; what lies below a logarithmic axis as triangles."""
    drawn = curves(figure, rows)
    reading = how_to_read(figure, drawn)
    looks = series_looks(drawn, colours)
    levels = overlaps(figure, drawn)
    floor = lowest_shown(figure, drawn)
    labelled: set[int] = set()
    for curve, level in zip(drawn, levels, strict=True):
        look = looks[curve.colour]
        is_new = curve.colour not in labelled
        labelled.add(curve.colour)
        if is_new and curve.has_others:  # what its strokes are is said once for all
            _draw_colour(axes, look, curve.label)
        label = curve.label if is_new and not curve.has_others else None
        if curve.is_joined and not curve.has_others:
            label = curve.label if curve.style == "points" else None
        _draw_curve(axes, curve, look, level, floor, label)
    has_squares = any(look.place for look in looks.values())
    has_below = any(_is_below(curve, floor).any() for curve in drawn if curve.style == "points")
    explain_strokes(axes, reading, has_squares, has_below)
    for slope, dashes in zip(figure.slopes, _SLOPE_DASHES, strict=False):
        _draw_slope(axes, figure, slope, rows, dashes)
    axes.set_xlabel(literal(words(figure.x)))


def series_looks(drawn: Sequence[Curve], colours: Mapping[str, str]) -> dict[int, Look]:
    """The look of each series; those of one colour, as of one Hessian under two activations, differ in their marks."""
    found: dict[int, Look] = {}
    for curve in drawn:
        if curve.colour not in found:
            colour = (
                HESSIAN_COLOURS[curve.part] if curve.part else colours.get(curve.label, series_colour(curve.colour))
            )
            found[curve.colour] = Look(colour, sum(look.colour == colour for look in found.values()))
    shared = {look.colour for look in found.values() if look.place}
    return {place: replace(look, is_shared=look.colour in shared) for place, look in found.items()}


def overlaps(figure: Lines, drawn: Sequence[Curve]) -> list[NDArray[np.int64]]:
    """Under how many later curves of other series each point lies: it is drawn so much larger as to be seen."""
    if len({curve.colour for curve in drawn}) > _MOST_SERIES:
        return [np.zeros(curve.y.size, dtype=np.int64) for curve in drawn]
    heights = [_height(figure, curve.y) for curve in drawn]
    finite = np.concatenate([np.empty(0), *(values[np.isfinite(values)] for values in heights)])
    same = _SAME * float(np.ptp(finite)) if finite.size else 0.0
    found = []
    for place, curve in enumerate(drawn):
        above = [
            _is_under(curve, heights[place], drawn[later], heights[later], same)
            for later in range(place + 1, len(drawn))
        ]
        found.append(np.minimum(_MOST_LEVELS, np.sum(above, axis=0, initial=0) + np.zeros(curve.y.size, np.int64)))
    return found


def _height(figure: Lines, values: Floats) -> Floats:
    """Values as they stand along the axis."""
    if figure.y_scale != "log":
        return values
    shown = np.where(values > 0, values, np.nan)
    low = figure.y_limits[0] if figure.y_limits else None
    return np.log(shown if low is None else np.maximum(shown, low))


def _is_under(curve: Curve, heights: Floats, later: Curve, its: Floats, same: float) -> NDArray[np.bool_]:
    """Where circles lie under circles, or both ends of a piece of a line under another line."""
    is_point = curve.style == "points"
    is_other = later.colour != curve.colour and (later.style == "points") == is_point
    if not is_other or (not is_point and (curve.is_joined or heights.size > _FEW)):
        return np.zeros(heights.size, dtype=bool)
    at = dict(zip(later.x, its, strict=False))
    is_near = np.array([x in at and abs(at[x] - y) <= same for x, y in zip(curve.x, heights, strict=False)])
    if is_point or is_near.size < 2:
        return is_near
    is_piece = np.concatenate([[False], is_near[1:] & is_near[:-1], [False]])
    return np.asarray(is_piece[1:] | is_piece[:-1], dtype=bool)


def lowest_shown(figure: Lines, drawn: Sequence[Curve]) -> float | None:
    """The lower end of a logarithmic axis: what the figure says, or half the least number where there are zeros."""
    if figure.y_scale != "log":
        return None
    if figure.y_limits and figure.y_limits[0] is not None:
        return figure.y_limits[0]
    values = np.concatenate([np.empty(0), *(curve.y for curve in drawn if curve.style == "points")])
    positive = values[values > 0]
    return float(positive.min()) / 2 if positive.size and (values <= 0).any() else None


def _is_below(curve: Curve, floor: float | None) -> NDArray[np.bool_]:
    return np.zeros(curve.y.size, dtype=bool) if floor is None else curve.y < floor


def _draw_colour(axes: Axes, look: Look, label: str) -> None:
    """An entry of the legend for a series with several strokes."""
    style: dict[str, Any] = {"color": look.colour, "linewidth": 3.0, "label": label}
    if look.is_shared:
        style |= {"linewidth": 1.5, "marker": marker(look.place), "markerfacecolor": "none", "markersize": 5.5}
    axes.plot([], [], stroke(look.place), **style)


def _draw_curve(
    axes: Axes, curve: Curve, look: Look, level: NDArray[np.int64], floor: float | None, label: str | None
) -> None:
    if curve.has_band:
        axes.fill_between(curve.x, curve.low, curve.high, color=look.colour, alpha=0.2, linewidth=0)
    if curve.style == "points":
        _draw_points(axes, curve, look, level, floor, label)
    elif curve.is_joined:
        kept = np.where(_is_below(curve, floor), floor or 0.0, curve.y)
        axes.plot(curve.x, kept, stroke(look.place), color=look.colour, linewidth=0.8)
    else:
        dashes = "--" if curve.style == "dashed" else stroke(look.place)
        axes.plot(curve.x, curve.y, dashes, color=look.colour, linewidth=1.5, label=label)
        for number in range(1, int(level.max(initial=0)) + 1):
            under = np.where(level >= number, curve.y, np.nan)
            axes.plot(curve.x, under, dashes, color=look.colour, linewidth=1.5 + 1.5 * number, zorder=1.9)


def _draw_points(
    axes: Axes, curve: Curve, look: Look, level: NDArray[np.int64], floor: float | None, label: str | None
) -> None:
    """Open markers, of long curves some where they lie close; triangles at the floor stand for what is below it."""
    style: dict[str, Any] = {"color": look.colour, "markerfacecolor": "none"}
    below = _is_below(curve, floor)
    if label and curve.is_joined:
        joined: dict[str, Any] = {"linestyle": stroke(look.place), "linewidth": 0.8}
        axes.plot([], [], marker(look.place), markersize=4.5, label=label, **joined, **style)
        label = None
    every = _APART if len(curve.x) > _FEW else None
    for number in sorted({0, *level.tolist()}):
        shown = np.where(below | (level != number), np.nan, curve.y)
        size = 4.5 + 2.4 * number
        axes.plot(
            curve.x, shown, marker(look.place), markersize=size, zorder=2.5, markevery=every,
            label=None if number else label, **style,
        )  # fmt: skip
    if below.any():
        places = [x for x, is_below in zip(curve.x, below, strict=True) if is_below]
        sizes = 4.5 + 2.4 * float(level[below].max())
        axes.plot(places, np.full(len(places), floor), "v", markersize=sizes, clip_on=False, zorder=2.6, **style)


def slope_line(figure: Lines, slope: Slope, rows: Sequence[Row]) -> tuple[Floats, Floats]:
    """The ends of a line of growth: over all x of the rows, through one point of those that it is of."""
    chosen = sorted((row for row in rows if matches(row, slope.where)), key=lambda row: row.number(figure.x))
    if not chosen:
        return np.empty(0), np.empty(0)
    at = chosen[0 if slope.through == "first" else -1]
    places = [row.number(figure.x) for row in rows]
    x = np.array([min(places), max(places)])
    return x, at.number(slope.y) * (x / at.number(figure.x)) ** slope.exponent


def _draw_slope(axes: Axes, figure: Lines, slope: Slope, rows: Sequence[Row], dashes: tuple[float, ...]) -> None:
    x, y = slope_line(figure, slope, rows)
    if x.size:
        axes.plot(
            x, y, color=FAINT, linestyle=(0, dashes), linewidth=1.2, zorder=1.5, label=mathematics(slope.label)
        )  # fmt: skip
