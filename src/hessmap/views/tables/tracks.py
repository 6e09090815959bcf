"""Tracks of curvature as tables: those of a store, and the points of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hessmap.maps.comparison import track_summary
from hessmap.records import CurvatureTrack, TrackPoint, TrackSummary
from hessmap.views.tables.contents import FittingTable, Table, moment, number
from hessmap.views.tables.map import summary_view

POINTS_LEGEND = (
    "norm of the gradient; sharpness and trace of the {part} Hessian; overlap: the share of the gradient in the "
    "sharpest directions"
)
_MANY = 40


def stored_tracks_view(summaries: Sequence[TrackSummary], store: Path) -> RenderableType:
    """A row per track, oldest first; a sentence where there is none."""
    if not summaries:
        return Text(f"No track is stored in {store}; hessmap.Tracker and hessmap tracks checkpoints make them.")
    lines = tuple(
        (
            summary.name,
            moment(summary.created)[:16],
            summary.network,
            f"{summary.num_parameters:,}",
            f"{summary.num_points:,}",
            "–" if summary.last_step is None else f"{summary.last_step:,}",
            f"{summary.spent / summary.seconds:.0%}" if summary.share is not None and summary.seconds else "–",
        )
        for summary in summaries
    )
    labels = ("track", "begun (UTC)", "network", "parameters", "points", "last step", "share")
    return FittingTable(Table(labels, lines, (False, False, False, True, True, True, True)))


def track_view(track: CurvatureTrack) -> RenderableType:
    """Everything a terminal can show of a track."""
    head = Text.assemble((track.name, "bold"), f": {track.network}\n", (track_facts(track), "dim"))
    shown = Padding(FittingTable(points(track)), (1, 0, 0, 0))
    return Padding(Group(head, shown, summary_view(track_summary(track))), (1, 0, 0, 0))


def track_facts(track: CurvatureTrack) -> str:
    sizes = f"{track.num_parameters:,} parameters, {track.num_samples:,} samples, {track.loss} loss"
    return f"{sizes}; {POINTS_LEGEND.format(part=track.part.replace('_', '-'))}"


def points(track: CurvatureTrack) -> Table:
    """One row per point; of many, evenly chosen ones with the first and the last."""
    chosen = track.points
    if len(chosen) > _MANY:
        places = {round(place * (len(chosen) - 1) / (_MANY - 1)) for place in range(_MANY)}
        chosen = tuple(chosen[place] for place in sorted(places))
    labels: tuple[str, ...]
    labels = ("step", "risk", "gradient", "sharpness", "trace", "overlap", "products", "seconds")
    lines = tuple(map(_cells, chosen))
    if any(point.stability_ratio is not None for point in chosen):
        ratios = [point.stability_ratio for point in chosen]
        added = ["–" if ratio is None else f"{ratio:.2f}{' !' if ratio >= 1 else ''}" for ratio in ratios]
        labels = (*labels[:4], "of threshold", *labels[4:])
        lines = tuple((*line[:4], ratio, *line[4:]) for line, ratio in zip(lines, added, strict=True))
    return Table(labels, lines, tuple(True for _ in labels))


def _cells(point: TrackPoint) -> tuple[str, ...]:
    trace, overlap = point.trace, point.gradient_overlap
    return (
        f"{point.step:,}",
        number(point.risk),
        number(point.gradient_norm),
        "–" if point.sharpness is None else f"{number(point.sharpness)}{'' if point.converged else ' ?'}",
        "–" if trace is None else trace.with_error,
        "–" if overlap is None else f"{overlap.value:.2f}",
        f"{point.num_products:,}",
        number(point.cost),
    )
