"""Figures over the steps of a run: curvature along training, and Langevin chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hessmap.errors import require
from hessmap.records import HESSIAN_SYMBOLS, CurvatureTrack, LearningCoefficientEstimate
from hessmap.views.plots.style import (
    FAINT,
    HESSIAN_COLOURS,
    INK,
    SERIES_COLOURS,
    SHADE,
    dress,
    legend_below,
    new_figure,
    series_colour,
)

_RISK, _GRADIENT = SERIES_COLOURS[2], SERIES_COLOURS[3]  # none of a Hessian
_FIRST_OTHER = 4  # of the colours: that of the second eigenvalue
_MOST_NAMED = 4  # eigenvalues with a colour and an entry each
_ORDINALS = ("largest: the sharpness", "second", "third", "fourth")
_PANEL = (4.4, 3.5)
Floats = NDArray[np.float64]
Draw = Callable[[Axes, CurvatureTrack], None]


def track_figure(track: CurvatureTrack) -> Figure:
    """Draw all panels for which a track has numbers in one figure.

    Args:
        track: The track.

    Returns:
        Figure: A matplotlib figure.
    """
    panels = _panels(track)
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure = new_figure(_PANEL[0] * columns, _PANEL[1] * lines)
    for place, (title, draw) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(lines, columns, place)
        draw(axes, track)
        _finish(axes, "Trace" if draw is _draw_trace and not _has_errors(track) else title)
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
    preconditioned = [point for point in track.points if point.stability_ratio is not None]
    if any(point.sharpness_threshold is None for point in preconditioned):
        panels["Preconditioned sharpness"] = _draw_preconditioned
    if any(point.trace is not None for point in track.points):
        panels["Trace, with two standard errors"] = _draw_trace
    if any(point.gradient_overlap is not None for point in track.points):
        panels["Gradient in the sharpest directions"] = _draw_overlap
    return panels


def _finish(axes: Axes, title: str) -> None:
    dress(axes, title)
    axes.set_xlabel("step", fontsize=9, color=INK)
    axes.yaxis.label.set(fontsize=9, color=INK)
    legend_below(axes, num_columns=2)


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
    for name, colour in (("risk", _RISK), ("gradient_norm", _GRADIENT)):
        _draw_curve(axes, broken_curve(track, steps, track.column(name)), colour, name.replace("_", " "))
    if (track.column("risk") > 0).all():
        axes.set_yscale("log", nonpositive="mask")
    axes.set_ylabel("risk, gradient norm")
    _shade_gaps(axes, track)


def _draw_eigenvalues(axes: Axes, track: CurvatureTrack) -> None:
    points = [point for point in track.points if point.eigenvalues.size]
    steps = [point.step for point in points]
    count = min(point.eigenvalues.size for point in points)
    values = np.array([point.eigenvalues[:count] for point in points])
    for place in range(count):
        curve, colour = broken_curve(track, steps, values[:, place]), _eigenvalue_colour(track, place, count)
        _draw_curve(axes, curve, colour, _eigenvalue_label(place, count), zorder=3 - place / count)
    limits = [(point.step, point.sharpness_threshold) for point in points if point.sharpness_threshold is not None]
    if limits and min(limit for _, limit in limits) <= 20 * float(values.max()):
        axes.plot(*zip(*limits, strict=True), "--", color=FAINT, label=_threshold_label(track))
        _mark_crossings(axes, track)
    axes.set_ylabel(f"eigenvalue of ${HESSIAN_SYMBOLS[track.part]}$")
    _start_at_zero(axes, values)
    _shade_gaps(axes, track)


def _draw_preconditioned(axes: Axes, track: CurvatureTrack) -> None:
    steps = [point.step for point in track.points]
    values, limits = track.column("preconditioned_sharpness"), track.column("stability_threshold")
    _draw_curve(axes, broken_curve(track, steps, values), HESSIAN_COLOURS["loss"], "preconditioned sharpness")
    axes.plot(*broken_curve(track, steps, limits), "--", color=FAINT, label=_threshold_label(track))
    _mark_crossings(axes, track)
    axes.set_ylabel("eigenvalue of $P^{-1/2} H P^{-1/2}$")
    _start_at_zero(axes, values)
    _shade_gaps(axes, track)


def _threshold_label(track: CurvatureTrack) -> str:
    """Whose stability threshold it is; the formula is in the sentences, where there is room for it."""
    report = next(point.step_report for point in reversed(track.points) if point.step_report is not None)
    return f"threshold of {report.optimizer}"


def _mark_crossings(axes: Axes, track: CurvatureTrack) -> None:
    """A triangle where the sharpness passes the threshold, in the direction in which it does."""
    values = dict(zip([point.step for point in track.points], track.column("preconditioned_sharpness"), strict=True))
    for is_above, sign, label in ((True, "^", "rises above it"), (False, "v", "falls below it")):
        steps = [step for step, above in track.crossings if above == is_above]
        if steps:
            places = [values[step] for step in steps]
            axes.plot(steps, places, sign, color=SERIES_COLOURS[1], markersize=6, label=label, zorder=4)


def _eigenvalue_colour(track: CurvatureTrack, place: int, count: int) -> str:
    """The largest in the colour of the Hessian; few others have one each, many have one together."""
    if place == 0:
        return HESSIAN_COLOURS[track.part]
    return series_colour(_FIRST_OTHER + place - 1) if count <= _MOST_NAMED else SERIES_COLOURS[_FIRST_OTHER]


def _eigenvalue_label(place: int, count: int) -> str | None:
    if place == 0 or count <= _MOST_NAMED:
        return _ORDINALS[place]
    return f"the next {count - 1}" if place == 1 else None


def _has_errors(track: CurvatureTrack) -> bool:
    """Whether some trace was estimated, and not taken from the structure of the network."""
    return any(point.trace is not None and point.trace.standard_error > 0 for point in track.points)


def _start_at_zero(axes: Axes, values: Floats) -> None:
    """An axis of positive numbers shows how far they are from zero."""
    if np.nanmin(values) > 0:
        axes.set_ylim(bottom=0.0)


def _draw_trace(axes: Axes, track: CurvatureTrack) -> None:
    traces = [(point.step, point.trace) for point in track.points if point.trace is not None]
    steps = [step for step, _ in traces]
    values = np.array([trace.value for _, trace in traces])
    errors = 2 * np.array([trace.standard_error for _, trace in traces])
    places, low = broken_curve(track, steps, values - errors)
    high = broken_curve(track, steps, values + errors)[1]
    colour = HESSIAN_COLOURS[track.part]
    axes.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
    _draw_curve(axes, broken_curve(track, steps, values), colour, None)
    axes.set_ylabel(f"trace of ${HESSIAN_SYMBOLS[track.part]}$")
    _start_at_zero(axes, values - errors)
    _shade_gaps(axes, track)


def _draw_overlap(axes: Axes, track: CurvatureTrack) -> None:
    overlaps = [(point.step, point.gradient_overlap) for point in track.points if point.gradient_overlap is not None]
    steps = [step for step, _ in overlaps]
    values = np.array([overlap.value for _, overlap in overlaps])
    _draw_curve(axes, broken_curve(track, steps, values), _GRADIENT, f"in {overlaps[0][1].num_vectors} directions")
    axes.plot(steps, [overlap.chance for _, overlap in overlaps], "--", color=FAINT, label="of a random vector")
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel("share of the squared norm")
    _shade_gaps(axes, track)


def chains_figure(found: LearningCoefficientEstimate, exact: float | None = None) -> Figure:
    """Draw the chains of an estimated learning coefficient: n beta times the excess loss in blocks of steps.

    Args:
        found: The estimate; its value is drawn as a line, burn-in is shaded.
        exact: The exact coefficient, drawn as a dashed line. Default: None.

    Returns:
        Figure: A matplotlib figure.
    """
    figure = new_figure(width=6.4, height=3.4)
    axes = figure.subplots()
    settings = found.settings
    total = settings.num_burn_in + settings.num_draws
    steps = (np.arange(found.traces.shape[1]) + 0.5) * total / found.traces.shape[1]
    axes.axvspan(0, found.burn_in_share * total, color=SHADE, zorder=0)
    axes.plot(steps, found.traces.T, color=SERIES_COLOURS[0], linewidth=0.6, alpha=0.45)
    axes.plot(steps, found.traces.mean(axis=0), color=INK, linewidth=1.2, label="mean of the chains")
    axes.axhline(found.value, color=SERIES_COLOURS[1], linewidth=1.4, label=f"estimate {found.with_error}")
    axes.axhspan(*found.interval, color=SERIES_COLOURS[1], alpha=0.15, linewidth=0)
    if exact is not None:
        axes.axhline(exact, color=FAINT, linestyle="--", linewidth=1.2, label=f"exact {exact:g}")
    axes.set_xlim(0, total)
    axes.set_xlabel("step (burn-in shaded)", fontsize=9, color=INK)
    axes.set_ylabel(r"$n\beta\,(L(w) - L(w_0))$", fontsize=9, color=INK)
    axes.legend(fontsize=8, frameon=False)
    dress(axes, f"{settings.num_chains} chains, {found.verdict}")
    return figure
