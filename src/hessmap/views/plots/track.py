"""Curvature along a training: risk, eigenvalues, trace and the gradient's share, over the steps.

Where no point was made for long, no line is drawn: what happened there is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hessmap.errors import require
from hessmap.results.tracks import CurvatureTrack
from hessmap.views.plots.style import FAINT, HESSIAN_COLOURS, INK, PAPER, SHADE, dress, new_figure

_BLUE, _ORANGE = HESSIAN_COLOURS["outer_product"], HESSIAN_COLOURS["functional"]
_PANEL = (4.4, 3.0)
Floats = NDArray[np.float64]
Draw = Callable[[Axes, CurvatureTrack], None]


def track_figure(track: CurvatureTrack) -> Figure:
    """All panels that the track has numbers for, in one figure."""
    panels = _panels(track)
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure = new_figure(_PANEL[0] * columns, _PANEL[1] * lines)
    for place, (title, draw) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(lines, columns, place)
        draw(axes, track)
        _finish(axes, title)
    return figure


def panel_figures(track: CurvatureTrack) -> dict[str, Figure]:
    """Every panel as a figure of its own, narrow enough for a phone, by its title."""
    figures = {}
    for title, draw in _panels(track).items():
        figures[title] = new_figure(4.6, 3.3)
        axes = figures[title].subplots()
        draw(axes, track)
        _finish(axes, "")
    return figures


def _panels(track: CurvatureTrack) -> dict[str, Draw]:
    """What can be drawn of a track, by title."""
    must, remedy = "a track must have a point to be drawn", "Call the tracker in the training loop"
    require(bool(track.points), must, f"{track.name!r} has none", remedy)
    panels: dict[str, Draw] = {"Risk and gradient": _draw_risk}
    if any(point.eigenvalues.size for point in track.points):
        panels["Largest eigenvalues"] = _draw_eigenvalues
    if any(point.trace is not None for point in track.points):
        panels["Trace, with two standard errors"] = _draw_trace
    if any(point.gradient_overlap is not None for point in track.points):
        panels["Gradient in the sharpest directions"] = _draw_overlap
    return panels


def _finish(axes: Axes, title: str) -> None:
    dress(axes, title)
    axes.set_xlabel("step", fontsize=9, color=INK)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=8, labelcolor=INK, framealpha=0.7, facecolor=PAPER, edgecolor="none")


def broken_curve(track: CurvatureTrack, steps: Sequence[int], values: Floats) -> tuple[Floats, Floats]:
    """Steps and values with a nan in the middle of every gap of the track, at which a line breaks."""
    middles = [(left + right) / 2 for left, right in track.gaps]
    places = np.searchsorted(steps, middles)
    return np.insert(np.asarray(steps, dtype=float), places, middles), np.insert(values, places, np.nan)


def _draw_curve(axes: Axes, curve: tuple[Floats, Floats], colour: str, label: str | None, zorder: float = 2) -> None:
    axes.plot(*curve, "o-", color=colour, markersize=3, label=label, linewidth=1.2, zorder=zorder)


def _shade_gaps(axes: Axes, track: CurvatureTrack) -> None:
    for place, (left, right) in enumerate(track.gaps):
        axes.axvspan(left, right, color=SHADE, zorder=0, label=None if place else "not measured")


def _draw_risk(axes: Axes, track: CurvatureTrack) -> None:
    steps = [point.step for point in track.points]
    for name, colour in (("risk", INK), ("gradient_norm", _ORANGE)):
        _draw_curve(axes, broken_curve(track, steps, track.column(name)), colour, name.replace("_", " "))
    if (track.column("risk") > 0).all():
        axes.set_yscale("log", nonpositive="mask")
    _shade_gaps(axes, track)


def _draw_eigenvalues(axes: Axes, track: CurvatureTrack) -> None:
    points = [point for point in track.points if point.eigenvalues.size]
    steps = [point.step for point in points]
    count = min(point.eigenvalues.size for point in points)
    values = np.array([point.eigenvalues[:count] for point in points])
    for place in range(count):
        label = {0: "largest: the sharpness", 1: f"the next {count - 1}"}.get(place)
        curve = broken_curve(track, steps, values[:, place])
        _draw_curve(axes, curve, _BLUE if place else INK, label, zorder=2 if place else 3)
    limits = [(point.step, 2 / point.learning_rate) for point in points if point.learning_rate]
    if limits and min(limit for _, limit in limits) <= 20 * float(values.max()):
        axes.plot(*zip(*limits, strict=True), "--", color=FAINT, label="2 / learning rate")
    _shade_gaps(axes, track)


def _draw_trace(axes: Axes, track: CurvatureTrack) -> None:
    traces = [(point.step, point.trace) for point in track.points if point.trace is not None]
    steps = [step for step, _ in traces]
    values = np.array([trace.value for _, trace in traces])
    errors = 2 * np.array([trace.standard_error for _, trace in traces])
    places, low = broken_curve(track, steps, values - errors)
    axes.fill_between(places, low, broken_curve(track, steps, values + errors)[1], color=_BLUE, alpha=0.2, linewidth=0)
    _draw_curve(axes, broken_curve(track, steps, values), _BLUE, None)
    _shade_gaps(axes, track)


def _draw_overlap(axes: Axes, track: CurvatureTrack) -> None:
    overlaps = [(point.step, point.gradient_overlap) for point in track.points if point.gradient_overlap is not None]
    steps = [step for step, _ in overlaps]
    label = f"share of the squared norm in {overlaps[0][1].num_vectors} directions"
    values = np.array([overlap.value for _, overlap in overlaps])
    _draw_curve(axes, broken_curve(track, steps, values), _BLUE, label)
    axes.plot(steps, [overlap.chance for _, overlap in overlaps], "--", color=FAINT, label="of a random vector")
    axes.set_ylim(-0.03, 1.03)
    _shade_gaps(axes, track)
