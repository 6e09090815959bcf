"""Series over a field: what each curve looks like so that all of them are seen, also where they lie on each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from hessmap.views.plots.style import FAINT, HESSIAN_COLOURS, literal, marker, mathematics, series_colour, stroke
from hessmap_research.runner.row import Row
from hessmap_research.runner.view import Lines, Slope
from hessmap_research.views.legends import explain_strokes, how_to_read
from hessmap_research.views.panels import Curve, curves, matches
from hessmap_research.views.table import words

Floats = NDArray[np.float64]
_FEW = 60  # more points than this are thinned where they lie close
_APART = 0.022  # of the diagonal of a panel: markers of a thinned curve
_SAME = 0.008  # of what a panel shows: closer than this two curves lie on each other
_MOST_SERIES = 6  # that are told apart by sizes where they lie on each other
_MOST_LEVELS = 3
_SLOPE_DASHES = ((8.0, 3.0), (2.0, 2.0), (8.0, 2.0, 2.0, 2.0))


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
