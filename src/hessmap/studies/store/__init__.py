"""The SQLite store of studies, maps and tracks."""

from hessmap.studies.store.failures import StoreError
from hessmap.studies.store.lock import only_run
from hessmap.studies.store.maps import MapSummary, StoredMap, add_map, free_name, load_map, map_summaries, require_free
from hessmap.studies.store.store import Failure, Outcome, Store, Summary
from hessmap.studies.store.tracks import TrackSummary, load_track, track_summaries

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
