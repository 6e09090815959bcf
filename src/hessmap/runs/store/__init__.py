"""The SQLite store of studies, maps and tracks."""

from hessmap.runs.store.failures import StoreError
from hessmap.runs.store.lock import only_run
from hessmap.runs.store.maps import MapSummary, StoredMap, add_map, free_name, load_map, map_summaries, require_free
from hessmap.runs.store.store import Failure, Outcome, Store, Summary
from hessmap.runs.store.tracks import TrackSummary, load_track, track_summaries

__all__ = [
    "Failure",
    "MapSummary",
    "Outcome",
    "Store",
    "StoreError",
    "StoredMap",
    "Summary",
    "TrackSummary",
    "add_map",
    "free_name",
    "load_map",
    "load_track",
    "map_summaries",
    "only_run",
    "require_free",
    "track_summaries",
]
