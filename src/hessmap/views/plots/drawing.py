"""Panels that are described as data, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from hessmap.views.plots.figure_data import Axis, FigureData, Line, Trace
from hessmap.views.plots.style import (
    BAR_COLOURS,
    FAINT,
    HESSIAN_COLOURS,
    INK,
    SHADE,
    dress,
    literal,
    series_colour,
)

_NUM_TICKS = 8
_COLOURS = {**HESSIAN_COLOURS, "ink": INK, "faint": FAINT, "pale": BAR_COLOURS[0]}
_STYLES: dict[str, dict[str, Any]] = {
    "line": {},
    "dashed": {"linestyle": "--"},
    "both": {"marker": "o", "markersize": 3},
    "points": {"marker": "o", "markersize": 4, "linestyle": "none"},
}
_MARKERS = {"up": "^", "down": "v"}


def colour_of(name: str) -> str:
    """The colour behind a name: that of a Hessian, "ink", "faint", "pale", or "series0", "series1", .."""
    return _COLOURS[name] if name in _COLOURS else series_colour(int(name.removeprefix("series")))


def draw(axes: Axes, figure: FigureData, title: str = "", linewidth: float = 1.6) -> list[Artist]:
    """Draw a panel; the traces stand in the order in which they are given, later ones above.

    Args:
        axes: Where.
        figure: The panel.
        title: Title above it. Defaults to none.
        linewidth: Of its lines, in points. Defaults to 1.6.

    Returns:
        list[Artist]: What belongs into a legend.
    """
    handles: list[Artist] = []
    bars = [trace for trace in figure.traces if trace.kind == "bars"]
    for trace in figure.traces:
        drawn = _draw_bars(axes, trace, bars) if trace.kind == "bars" else _draw_trace(axes, trace, linewidth)
        if trace.label and trace.in_legend:
            dashed = [line.label for line in figure.lines if _is_of(line, trace) and line.label]
            drawn.set_label(trace.label + (f"   (dashed: {', '.join(dashed)})" if dashed else ""))
            handles.append(drawn)
    for line in figure.lines:
        drawn = _draw_line(axes, line)
        known = {str(handle.get_label()) for handle in handles}
        if line.label and line.label not in known and not any(_is_of(line, trace) for trace in figure.traces):
            drawn.set_label(line.label)
            handles.append(drawn if line.end is None else _swatch(axes, line.label))
    _set_axis(axes, "x", figure.x)
    _set_axis(axes, "y", figure.y)
    dress(axes, title)
    if figure.y.names:
        axes.grid(visible=False, axis="y")
        _set_names(axes, figure)
    return handles


def _is_of(line: Line, trace: Trace) -> bool:
    """Whether a reference line belongs to a trace: then the entry of the trace names it."""
    return line.end is None and line.colour == trace.colour


def _draw_trace(axes: Axes, trace: Trace, linewidth: float) -> Artist:
    colour = colour_of(trace.colour)
    if trace.kind == "rug":
        (drawn,) = axes.plot(
            *(trace.x, np.zeros(len(trace.x)), "|"), color=colour, markersize=9,
            transform=axes.get_xaxis_transform(), clip_on=False,
        )  # fmt: skip
        return drawn
    style = _STYLES[trace.kind] | ({"marker": _MARKERS[trace.marker], "markersize": 6} if trace.marker else {})
    band = None
    if len(trace.low):
        band = axes.fill_between(trace.x, trace.low, trace.high, color=colour, alpha=0.25, linewidth=0)
    (drawn,) = axes.plot(trace.x, trace.y, color=colour, linewidth=linewidth, alpha=trace.opacity, **style)
    return drawn if band is None else band


def _draw_bars(axes: Axes, trace: Trace, all_bars: Sequence[Trace]) -> Artist:
    """One bar at each name, the bars of several traces below one another."""
    shift = 0.38 * (all_bars.index(trace) - (len(all_bars) - 1) / 2)
    places = [place + shift for place in range(len(trace.y))]
    values = np.array([np.nan if value is None else value for value in trace.x], dtype=float)
    bars = axes.barh(places, values, 0.36, color=colour_of(trace.colour), label=trace.label)
    if len(trace.low):
        errors = np.array([values - np.asarray(trace.low), np.asarray(trace.high) - values])
        axes.errorbar(values, places, xerr=errors, fmt="none", ecolor=INK, elinewidth=1)
    return bars  # type: ignore[return-value]  # a container of patches, with a label of its own


def _draw_line(axes: Axes, line: Line) -> Artist:
    if line.end is not None:
        span = axes.axvspan if line.axis == "x" else axes.axhspan
        return span(line.at, line.end, facecolor=SHADE, edgecolor=SHADE, zorder=0)
    across = axes.axvline if line.axis == "x" else axes.axhline
    return across(line.at, color=colour_of(line.colour), linestyle=(0, (4, 3)), linewidth=1.0, alpha=0.9)


def _swatch(axes: Axes, label: str) -> Artist:
    """The entry of a shaded part, with a border: the shade is almost that of the paper."""
    return Patch(facecolor=SHADE, edgecolor=FAINT, linewidth=0.6, label=label)


def _set_axis(axes: Axes, which: str, axis: Axis) -> None:
    drawn = axes.xaxis if which == "x" else axes.yaxis
    if axis.names:
        return
    if axis.scale == "log":
        axes.set(**{f"{which}scale": "log"})
    elif axis.scale == "symlog" and axis.limits is not None:
        set_scale = axes.set_xscale if which == "x" else axes.set_yscale
        set_scale("symlog", linthresh=axis.edge)
        drawn.set_major_locator(FixedLocator(symmetric_ticks(axis)))
        drawn.set_minor_locator(NullLocator())
    if axis.limits is not None:
        axes.set(**{f"{which}lim": axis.limits})
    if axis.is_share:
        drawn.set_major_formatter(PercentFormatter(1.0, decimals=0))
    drawn.set_label_text(axis.label, fontsize=9, color=INK)


def symmetric_ticks(axis: Axis) -> list[float]:
    """Zero, and on both sides as many powers of ten as are read at a glance; none without an edge or limits."""
    if axis.limits is None or axis.edge <= 0:
        return []
    lowest, highest = (0.0 if limit is None else limit for limit in axis.limits)
    sides = {-1: -lowest, 1: highest}
    last = ceil(log10(axis.edge))
    powers = {sign: np.arange(floor(log10(side)), last - 1, -1) for sign, side in sides.items() if side > axis.edge}
    every = max(1, ceil(sum(map(len, powers.values())) / _NUM_TICKS))
    ticks = {0.0}
    for sign, exponents in powers.items():
        ticks.update(sign * 10.0 ** exponents[::every].astype(float))
    return sorted(ticks)


def _set_names(axes: Axes, figure: FigureData) -> None:
    """The names from the top, with what stands below them and on the other side."""
    axis = figure.y
    names = [f"{axis.label} {literal(name)}".strip() for name in axis.names]
    details = axis.details or ("",) * len(names)
    texts = [f"{name}\n{literal(detail)}" if detail else name for name, detail in zip(names, details, strict=True)]
    if figure.note:
        texts[-1] += f"\n({figure.note})"
    axes.set_ylim(len(texts) - 0.45, -0.55)
    axes.set_yticks(range(len(texts)), texts)
    if axis.remarks:
        notes = axes.secondary_yaxis("right")
        notes.set_yticks(range(len(texts)), axis.remarks)
        notes.tick_params(length=0, labelsize=8.5, colors=INK)
        notes.spines["right"].set_visible(False)
