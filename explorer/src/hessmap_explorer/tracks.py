"""The Training screen: tracks from the store, also while a training writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query

from hessmap.errors import InvalidInput, require, sentence
from hessmap.maps.comparison import track_summary
from hessmap.records import CurvatureTrack, Store, command_line, load_track
from hessmap.views.plots.track import broken_curve
from hessmap.views.tables.comparison import track_facts, track_points
from hessmap_explorer.answers import Answer, shown_entry
from hessmap_explorer.figures.figure import Axis, FigureData, Floats, Kind, Line, Trace, evenly, series, thinning_note
from hessmap_explorer.maps import table
from hessmap_explorer.python_lines import track_lines
from hessmap_explorer.reading import stored_tracks
from hessmap_explorer.settings import Explorer

_STEP = Axis("step")
COLUMNS = {  # of a track, by the title of the figure that shows it
    "Largest eigenvalues": "sharpness",
    "Risk and gradient": "risk",
    "Trace, with two standard errors": "trace",
    "Gradient in the sharpest directions": "gradient_overlap",
}


def track_figures(tracks: Sequence[CurvatureTrack]) -> list[FigureData]:
    """Sharpness beside the stability threshold, risk, trace, overlap: what any of the tracks has numbers for."""
    drawn = [track for track in tracks if track.points]
    if not drawn:
        return []
    gaps = tuple(Line(left, end=right, label="not measured") for track in drawn for left, right in track.gaps)
    shown = gaps if len(drawn) == 1 else ()
    figures = [
        (Axis("eigenvalue"), _sharpness),
        (Axis("risk", "log" if _is_positive(drawn, "risk") else "linear"), _risk),
        (Axis("trace"), _trace),
        (Axis("share", limits=(-0.03, 1.03)), _overlap),
    ]
    made = []
    for title, (axis, traces_of) in zip(COLUMNS, figures, strict=True):
        traces = tuple(trace for place, track in enumerate(drawn) for trace in traces_of(track, place, len(drawn) == 1))
        if traces:
            size = max(len(track.points) for track in drawn)
            note = thinning_note(max(len(trace.x) for trace in traces), size)
            made.append(FigureData(title, _STEP, axis, traces, shown, note=note, panel=title))
    return made


def _is_positive(tracks: Sequence[CurvatureTrack], name: str) -> bool:
    return all(bool((track.column(name) > 0).all()) for track in tracks)


def _curve(
    track: CurvatureTrack, values: Floats, label: str, colour: str, kind: Kind = "both", error: Floats | None = None
) -> list[Trace]:
    """The points that have the value, thinned, with a break in every gap."""
    has_value = np.flatnonzero(np.isfinite(values))
    if not has_value.size:
        return []
    chosen = has_value[evenly(has_value.size)]
    steps = [track.points[place].step for place in chosen]
    x, y = broken_curve(track, steps, values[chosen])
    if error is None:
        return [Trace(label, kind, x, y, colour=colour)]
    low, high = (broken_curve(track, steps, (values + sign * error)[chosen])[1] for sign in (-1, 1))
    return [Trace(label, kind, x, y, low, high, colour=colour)]


def _name(track: CurvatureTrack, what: str, is_alone: bool) -> str:
    return what if is_alone else track.name


def _sharpness(track: CurvatureTrack, place: int, is_alone: bool) -> list[Trace]:
    count = min((point.eigenvalues.size for point in track.points if point.eigenvalues.size), default=0)
    if not count:
        return []
    traces = []
    if is_alone:
        for rank in range(count - 1, 0, -1):
            values = np.array([point.eigenvalues[rank] if point.eigenvalues.size else np.nan for point in track.points])
            traces += _curve(track, values, f"the next {count - 1}", "outer_product")
        traces = [replace(trace, opacity=0.55, in_legend=number == 0) for number, trace in enumerate(traces)]
    colour = "loss" if is_alone else series(place)
    limits = track.column("sharpness_threshold")
    traces += _curve(track, track.column("sharpness"), _name(track, "sharpness", is_alone), colour)
    limit_name = "stability threshold" if is_alone else f"{track.name}, stability threshold"
    return traces + _curve(track, limits, limit_name, "faint" if is_alone else colour, "dashed")


def _risk(track: CurvatureTrack, place: int, is_alone: bool) -> list[Trace]:
    colour = "loss" if is_alone else series(place)
    traces = _curve(track, track.column("risk"), _name(track, "risk", is_alone), colour)
    if not is_alone:
        return traces
    return traces + _curve(track, track.column("gradient_norm"), "norm of the gradient", "functional")


def _trace(track: CurvatureTrack, place: int, is_alone: bool) -> list[Trace]:
    errors = [2 * point.trace.standard_error if point.trace is not None else np.nan for point in track.points]
    colour = "outer_product" if is_alone else series(place)
    return _curve(track, track.column("trace"), _name(track, "trace", is_alone), colour, error=np.array(errors))


def _overlap(track: CurvatureTrack, place: int, is_alone: bool) -> list[Trace]:
    colour = "outer_product" if is_alone else series(place)
    name = _name(track, "share of the squared norm", is_alone)
    traces = _curve(track, track.column("gradient_overlap"), name, colour)
    if not traces or not is_alone:
        return traces
    overlaps = [point.gradient_overlap for point in track.points]
    chance = np.array([np.nan if overlap is None else overlap.chance for overlap in overlaps])
    return traces + _curve(track, chance, "of a random vector", "faint", "dashed")


_MOST_TRACKS = 8  # as many as there are colours


def tracks_router(explorer: Explorer) -> APIRouter:
    """The routes of an explorer about tracks."""
    router = APIRouter(prefix="/api/tracks")

    @router.get("")
    def listed() -> Answer:
        refused: list[str] = []
        found = stored_tracks(explorer.store, refused)
        return Answer({"tracks": [summary.__dict__ for summary in reversed(found)], "refused": refused})

    @router.get("/shown")
    def shown(name: Annotated[list[str], Query(min_length=1)]) -> Answer:
        """One track, or several in the same figures."""
        require(len(name) <= _MOST_TRACKS, f"at most {_MOST_TRACKS} tracks are overlaid", f"got {len(name)}")
        if not explorer.store.exists():
            must, remedy = "a track must be stored before it is shown", "hessmap.Tracker makes one"
            raise InvalidInput(sentence(must, "nothing is stored yet", remedy))
        names = list(dict.fromkeys(name))
        with Store(explorer.store) as store:
            tracks = [load_track(store, one) for one in names]
        with shown_entry(f"the track {', '.join(map(repr, names))}"):
            figures = [
                {**figure.to_dict(), "python": track_lines(explorer.store, names, COLUMNS[figure.title])}
                for figure in track_figures(tracks)
            ]
            return Answer({"figures": figures, "tracks": [_described(track) for track in tracks]})

    return router


def _described(track: CurvatureTrack) -> dict[str, Any]:
    return {
        "name": track.name,
        "network": track.network,
        "facts": track_facts(track),
        "num_points": track.num_points,
        "summary": track_summary(track) if track.points else ("No point has been measured yet.",),
        "points": table(track_points(track)),
        "gaps": track.gaps,
        "command": command_line("tracks", "show", values=[track.name]),
    }
