"""The Training screen: tracks from the store, also while a training writes them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from hessmap.errors import InvalidInput, require, sentence
from hessmap.maps.comparison import track_summary
from hessmap.records import CurvatureTrack, Store, command_line, load_track
from hessmap.views.plots.figure_data import MOST_POINTS
from hessmap.views.plots.track import track_data
from hessmap.views.tables.comparison import track_facts, track_points
from hessmap_explorer.answers import Answer, shown_entry
from hessmap_explorer.maps import table
from hessmap_explorer.python_lines import track_lines
from hessmap_explorer.reading import stored_tracks
from hessmap_explorer.settings import Explorer

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
                {**figure.to_dict(), "python": track_lines(explorer.store, names, column)}
                for column, figure in track_data(tracks, MOST_POINTS).items()
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
