"""The SQLite store of maps and tracks."""

from hessmap.records.store.file import DEFAULT_STORE, StoreError
from hessmap.records.store.map_options import MapOptions
from hessmap.records.store.named_records import (
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
from hessmap.records.store.store import Store

__all__ = [
    "DEFAULT_STORE",
    "MapOptions",
    "MapSummary",
    "Store",
    "StoreError",
    "StoredMap",
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
    "set_times",
    "track_summaries",
]
