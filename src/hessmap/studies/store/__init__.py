"""The SQLite store of studies."""

from hessmap.studies.store.failures import StoreError
from hessmap.studies.store.lock import only_run
from hessmap.studies.store.store import Failure, Outcome, Store, Summary

__all__ = ["Failure", "Outcome", "Store", "StoreError", "Summary", "only_run"]
