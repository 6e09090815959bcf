"""Figures over the steps of a run: curvature along training, and Langevin chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hessmap.errors import require
from hessmap.records import HESSIAN_SYMBOLS, CurvatureTrack, LearningCoefficientEstimate
from hessmap.views.plots.drawing import draw
from hessmap.views.plots.figure_data import (
    Axis,
    FigureData,
    Floats,
    Kind,
    Line,
    Trace,
    Values,
    evenly,
    series,
    thinning_note,
)
from hessmap.views.plots.style import FAINT, INK, SERIES_COLOURS, SHADE, dress, legend_below, literal, new_figure

_RISK, _GRADIENT = "series2", "series3"  # none of a Hessian
_FIRST_OTHER = 4  # of the colours: that of the second eigenvalue
_MOST_NAMED = 4  # eigenvalues with a colour and an entry each
_ORDINALS = ("largest: the sharpness", "second", "third", "fourth")
_PANEL = (4.4, 3.5)


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
    for place, data in enumerate(panels, start=1):
        _draw_panel(figure.add_subplot(lines, columns, place), data, data.title)
    return figure


def panel_figures(track: CurvatureTrack) -> dict[str, Figure]:
    """Every panel as a figure of its own, narrow enough for a phone, by its title."""
    figures = {}
    for data in _panels(track):
        figures[data.title] = new_figure(4.6, 3.3)
        _draw_panel(figures[data.title].subplots(), data, "")
    return figures


def _panels(track: CurvatureTrack) -> Sequence[FigureData]:
    must, remedy = "a track must have a point to be drawn", "Call the tracker in the training loop"
    require(bool(track.points), must, f"{track.name!r} has none", remedy)
    return tuple(track_data([track]).values())


def _draw_panel(axes: Axes, data: FigureData, title: str) -> None:
    legend_below(axes, draw(axes, data, title, linewidth=1.2), num_columns=2)


def track_data(tracks: Sequence[CurvatureTrack], most: int | None = None) -> dict[str, FigureData]:
    """Whatever any of the tracks has numbers for, by the column of the track that it shows.

    Of several tracks the main curves are drawn over one another; ``most`` is the largest number of points of a curve.
    """
    drawn = [track for track in tracks if track.points]
    is_alone = len(drawn) == 1
    gaps = [Line(left, end=right, label="not measured") for track in drawn for left, right in track.gaps]
    made = {}
    for column, panel in _PANELS.items():
        pens = [
            _Pen(track, track.part if is_alone else series(place), is_alone, most) for place, track in enumerate(drawn)
        ]
        traces = tuple(trace for pen in pens for trace in panel.traces(pen))
        if traces:
            size = max(len(track.points) for track in drawn)
            note = thinning_note(max(len(trace.x) for trace in traces), size)
            axis, shown = panel.axis(drawn, traces), tuple(gaps) if is_alone else ()
            made[column] = FigureData(panel.title(drawn), Axis("step"), axis, traces, shown, note=note)
    return made


@dataclass(frozen=True)
class _Pen:
    """One track with its colour. A track alone has all its curves, one of several the main curve under its name."""

    track: CurvatureTrack
    colour: str
    is_alone: bool
    most: int | None

    def column(self, name: str, label: str, colour: str = "", kind: Kind = "both") -> list[Trace]:
        return self.curve(self.track.column(name), label, colour, kind)

    def curve(
        self, values: Floats, label: str, colour: str = "", kind: Kind = "both", error: Floats | None = None
    ) -> list[Trace]:
        """The points that have the value, thinned, with a break in every gap."""
        has_value = np.flatnonzero(np.isfinite(values))
        if not has_value.size:
            return []
        chosen = has_value[evenly(has_value.size, self.most)]
        steps = [self.track.points[place].step for place in chosen]
        x, y = _broken_curve(self.track, steps, values[chosen])
        low: Values = ()
        high: Values = ()
        if error is not None:
            low, high = (_broken_curve(self.track, steps, (values + sign * error)[chosen])[1] for sign in (-1, 1))
        name = label if self.is_alone else literal(self.track.name)
        name += f", {label}" if kind == "dashed" and not self.is_alone else ""
        return [Trace(name, kind, x, y, low, high, colour=colour or self.colour)]

    def threshold(self, name: str) -> list[Trace]:
        """Whose stability threshold it is; the formula is in the sentences, where there is room for it."""
        report = next(point.step_report for point in reversed(self.track.points) if point.step_report is not None)
        return self.column(name, f"threshold of {report.optimizer}", "faint" if self.is_alone else "", "dashed")

    def crossings(self) -> list[Trace]:
        """A triangle where the sharpness passes the threshold, in the direction in which it does."""
        found = []
        values = self.track.column("preconditioned_sharpness")
        places = {point.step: value for point, value in zip(self.track.points, values, strict=True)}
        for is_above, marker, label in _CROSSINGS if self.is_alone else ():
            steps = [step for step, above in self.track.crossings if above == is_above]
            heights = [places[step] for step in steps]
            found += [Trace(label, "points", steps, heights, colour="series1", marker=marker)] if steps else []
        return found


_CROSSINGS: tuple[tuple[bool, Literal["up", "down"], str], ...] = (
    (True, "up", "rises above it"),
    (False, "down", "falls below it"),
)


@dataclass(frozen=True)
class _Panel:
    title: Callable[[Sequence[CurvatureTrack]], str]
    traces: Callable[[_Pen], list[Trace]]
    axis: Callable[[Sequence[CurvatureTrack], Sequence[Trace]], Axis]


def _broken_curve(track: CurvatureTrack, steps: Sequence[int], values: Floats) -> tuple[Floats, Floats]:
    """Steps and values with a nan in the middle of every gap of the track, at which a line breaks."""
    middles = [(left + right) / 2 for left, right in track.gaps]
    places = np.searchsorted(steps, middles)
    return np.insert(np.asarray(steps, dtype=float), places, middles), np.insert(values, places, np.nan)


def _risk(pen: _Pen) -> list[Trace]:
    traces = pen.column("risk", "risk", _RISK if pen.is_alone else "")
    return traces + (pen.column("gradient_norm", "gradient norm", _GRADIENT) if pen.is_alone else [])


def _risk_axis(tracks: Sequence[CurvatureTrack], traces: Sequence[Trace]) -> Axis:
    is_positive = all(bool((track.column("risk") > 0).all()) for track in tracks)
    return Axis("risk, gradient norm" if len(tracks) == 1 else "risk", "log" if is_positive else "linear")


def _eigenvalues(pen: _Pen) -> list[Trace]:
    """The largest in the colour of the Hessian; few others have one each, many have one together."""
    found = [point.eigenvalues for point in pen.track.points]
    count = min((values.size for values in found if values.size), default=0)
    if not count:
        return []
    traces: list[Trace] = []
    for place in range(count if pen.is_alone else 1):
        values = np.array([values[place] if values.size else np.nan for values in found])
        is_named = place == 0 or count <= _MOST_NAMED
        label = _ORDINALS[place] if is_named else f"the next {count - 1}"
        colour = series(_FIRST_OTHER + place - 1 if is_named else _FIRST_OTHER) if place else ""
        traces += [replace(one, in_legend=is_named or place == 1) for one in pen.curve(values, label, colour)]
    limits, largest = pen.track.column("sharpness_threshold"), max(float(values[0]) for values in found if values.size)
    if np.isfinite(limits).any() and np.nanmin(limits) <= 20 * largest:
        traces += pen.threshold("sharpness_threshold") + pen.crossings()
    return traces


def _preconditioned(pen: _Pen) -> list[Trace]:
    """Where the preconditioner of some step is not 1: elsewhere this is the plain sharpness."""
    points = [point for point in pen.track.points if point.stability_ratio is not None]
    if all(point.sharpness_threshold is not None for point in points):
        return []
    colour = "loss" if pen.is_alone else ""
    traces = pen.column("preconditioned_sharpness", "preconditioned sharpness", colour)
    return traces + pen.threshold("stability_threshold") + pen.crossings()


def _trace(pen: _Pen) -> list[Trace]:
    errors = [2 * point.trace.standard_error if point.trace is not None else np.nan for point in pen.track.points]
    curves = pen.curve(pen.track.column("trace"), "trace", error=np.array(errors))
    return [replace(curve, in_legend=not pen.is_alone) for curve in curves]


def _trace_title(tracks: Sequence[CurvatureTrack]) -> str:
    """With errors where some trace was estimated, and not taken from the structure of the network."""
    traces = [point.trace for track in tracks for point in track.points]
    has_errors = any(trace is not None and trace.standard_error > 0 for trace in traces)
    return "Trace, with two standard errors" if has_errors else "Trace"


def _overlap(pen: _Pen) -> list[Trace]:
    overlaps = [point.gradient_overlap for point in pen.track.points]
    num_vectors = next((overlap.num_vectors for overlap in overlaps if overlap is not None), 0)
    label, colour = f"in {num_vectors} directions", _GRADIENT if pen.is_alone else ""
    traces = pen.column("gradient_overlap", label, colour)
    chance = np.array([np.nan if overlap is None else overlap.chance for overlap in overlaps])
    return traces + (pen.curve(chance, "of a random vector", "faint", "dashed") if pen.is_alone else [])


def _values_axis(name: str) -> Callable[[Sequence[CurvatureTrack], Sequence[Trace]], Axis]:
    """An axis of positive numbers shows how far they are from zero; ``{}`` is the symbol of the Hessian."""

    def axis(tracks: Sequence[CurvatureTrack], traces: Sequence[Trace]) -> Axis:
        lowest = min(float(np.nanmin(values)) for one in traces for values in (one.y, one.low) if len(values))
        symbol = f"${HESSIAN_SYMBOLS[tracks[0].part]}$"
        return Axis(name.replace("{}", symbol), limits=(0.0, None) if lowest > 0 else None)

    return axis


_PANELS = {
    "risk": _Panel(lambda _: "Risk and gradient", _risk, _risk_axis),
    "sharpness": _Panel(lambda _: "Largest eigenvalues", _eigenvalues, _values_axis("eigenvalue of {}")),
    "preconditioned_sharpness": _Panel(
        lambda _: "Preconditioned sharpness", _preconditioned, _values_axis("eigenvalue of $P^{-1/2} H P^{-1/2}$")
    ),
    "trace": _Panel(_trace_title, _trace, _values_axis("trace of {}")),
    "gradient_overlap": _Panel(
        lambda _: "Gradient in the sharpest directions",
        _overlap,
        lambda *_: Axis("share of the squared norm", limits=(-0.03, 1.03)),
    ),
}


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
