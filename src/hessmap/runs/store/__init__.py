"""The SQLite store of studies, maps and tracks."""

from hessmap.runs.store.file import DEFAULT_STORE, StoreError, run_lock
from hessmap.runs.store.map_options import MapOptions
from hessmap.runs.store.named_records import (
    MapSummary,
    StoredMap,
    TrackSummary,
    add_map,
    add_point,
    add_track,
    drop_points,
    drop_track,
    free_name,
    load_map,
    load_track,
    map_summaries,
    require_free_map,
    require_free_track,
    set_times,
    track_summaries,
)
from hessmap.runs.store.store import Failure, Outcome, Store, Summary

__all__ = [
    "DEFAULT_STORE",
    "Failure",
    "MapOptions",
    "MapSummary",
    "Outcome",
    "Store",
    "StoreError",
    "StoredMap",
    "Summary",
    "TrackSummary",
    "add_map",
    "add_point",
    "add_track",
    "drop_points",
    "drop_track",
    "free_name",
    "load_map",
    "load_track",
    "map_summaries",
    "require_free_map",
    "require_free_track",
    "run_lock",
    "set_times",
    "track_summaries",
]
