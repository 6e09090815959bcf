"""The self-contained HTML page of a track: what to make of it, its curves, its points."""

from __future__ import annotations

from hessmap.maps.comparison import track_verdicts
from hessmap.records import CurvatureTrack, command_line
from hessmap.views.page import Drawing, inline_svg, page
from hessmap.views.plots.track import panel_figures
from hessmap.views.tables.tracks import points, track_facts


def track_page(track: CurvatureTrack) -> str:
    """The page of one track, from its points alone."""
    figures = panel_figures(track) if track.points else {}
    return page(
        "track.html.j2",
        title=f"{track.name}: the curvature of {track.network} along its training",
        name=track.name,
        facts=track_facts(track),
        verdicts=track_verdicts(track),
        drawings=[
            Drawing(title, inline_svg(figure, salt=f"track{place}"))
            for place, (title, figure) in enumerate(figures.items())
        ],
        points=points(track),
        shown=len(points(track).lines),
        total=track.num_points,
        commands=["pip install hessmap", command_line("track", "show", "--html=track.html", values=[track.name])],
    )
