"""The SQLite store of studies and maps."""

from hessmap.studies.store.failures import StoreError
from hessmap.studies.store.lock import only_run
from hessmap.studies.store.maps import MapSummary, StoredMap, add_map, free_name, load_map, map_summaries, require_free
from hessmap.studies.store.store import Failure, Outcome, Store, Summary

__all__ = [
    "Failure",
    "MapSummary",
    "Outcome",
    "Store",
    "StoreError",
    "StoredMap",
    "Summary",
    "add_map",
    "free_name",
    "load_map",
    "map_summaries",
    "only_run",
    "require_free",
]
