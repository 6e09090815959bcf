"""Curvature along a training: risk, eigenvalues, trace and the gradient's share, over the steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hessmap.errors import require
from hessmap.results.tracks import CurvatureTrack
from hessmap.views.plots.style import FAINT, HESSIAN_COLOURS, INK, dress, new_figure

_BLUE, _ORANGE = HESSIAN_COLOURS["outer_product"], HESSIAN_COLOURS["functional"]
_PANEL = (4.4, 3.0)
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


def _panels(track: CurvatureTrack) -> dict[str, Draw]:
    """What can be drawn of a track, by title."""
    must, remedy = "a track must have a point to be drawn", "Call the tracker in the training loop"
    require(bool(track.points), must, f"{track.name!r} has none", remedy)
    panels: dict[str, Draw] = {"Risk and gradient": _risk}
    if any(point.eigenvalues.size for point in track.points):
        panels["Largest eigenvalues"] = _eigenvalues
    if any(point.trace is not None for point in track.points):
        panels["Trace, with two standard errors"] = _trace
    if any(point.gradient_overlap is not None for point in track.points):
        panels["Gradient in the sharpest directions"] = _overlap
    return panels


def _finish(axes: Axes, title: str) -> None:
    dress(axes, title)
    axes.set_xlabel("step", fontsize=9, color=INK)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def _steps(track: CurvatureTrack) -> list[int]:
    return [point.step for point in track.points]


def _risk(axes: Axes, track: CurvatureTrack) -> None:
    for name, colour in (("risk", INK), ("gradient_norm", _ORANGE)):
        values = track.column(name)
        axes.plot(_steps(track), values, "o-", color=colour, markersize=3, label=name.replace("_", " "))
    if (track.column("risk") > 0).all():
        axes.set_yscale("log", nonpositive="mask")


def _eigenvalues(axes: Axes, track: CurvatureTrack) -> None:
    having = [point for point in track.points if point.eigenvalues.size]
    count = min(point.eigenvalues.size for point in having)
    values = np.array([point.eigenvalues[:count] for point in having])
    for place in reversed(range(count)):
        label = {0: "largest: the sharpness", count - 1: f"the next {count - 1}"}.get(place)
        colour = INK if place == 0 else _BLUE
        axes.plot([p.step for p in having], values[:, place], "o-", color=colour, markersize=3, label=label, lw=1.2)
    told = [(point.step, 2 / point.learning_rate) for point in having if point.learning_rate]
    if told and min(limit for _, limit in told) <= 20 * float(values.max()):
        axes.plot(*zip(*told, strict=True), "--", color=FAINT, label="2 / learning rate")


def _trace(axes: Axes, track: CurvatureTrack) -> None:
    told = [(point.step, point.trace) for point in track.points if point.trace is not None]
    steps = [step for step, _ in told]
    values = np.array([trace.value for _, trace in told])
    errors = 2 * np.array([trace.standard_error for _, trace in told])
    axes.fill_between(steps, values - errors, values + errors, color=_BLUE, alpha=0.2, linewidth=0)
    axes.plot(steps, values, "o-", color=_BLUE, markersize=3)


def _overlap(axes: Axes, track: CurvatureTrack) -> None:
    told = [(point.step, point.gradient_overlap) for point in track.points if point.gradient_overlap is not None]
    steps = [step for step, _ in told]
    count = told[0][1].num_vectors
    label = f"share of the squared norm in {count} directions"
    axes.plot(steps, [found.value for _, found in told], "o-", color=_BLUE, markersize=3, label=label)
    axes.plot(steps, [found.chance for _, found in told], "--", color=FAINT, label="of a random vector")
    axes.set_ylim(-0.03, 1.03)
