"""What the screens read: records of the store under their names, the same file never twice."""

from __future__ import annotations

import threading
from functools import lru_cache
from pathlib import Path

from hessmap.errors import InvalidInput, sentence
from hessmap.results.maps import CurvatureMap, NetworkCurvature
from hessmap.runs.store import (
    MapSummary,
    Store,
    StoredMap,
    TrackSummary,
    load_map,
    map_summaries,
    track_summaries,
)


def stored_maps(path: Path) -> tuple[MapSummary, ...]:
    """The maps of a store; none where there is no store yet."""
    if not path.exists():
        return ()
    with Store(path) as store:
        return map_summaries(store)


def stored_tracks(path: Path) -> tuple[TrackSummary, ...]:
    if not path.exists():
        return ()
    with Store(path) as store:
        return track_summaries(store)


def stored_map(path: Path, name: str) -> StoredMap:
    """The map of a name; one that was read before is remembered as long as it is the same."""
    if not path.exists():
        raise InvalidInput(
            sentence("a map must be stored before it is shown", "nothing is stored yet", "Make a map first")
        )
    created = [summary.created for summary in stored_maps(path) if summary.name == name]
    return _read_map(path, name, created[0] if created else "")


@lru_cache(maxsize=16)
def _read_map(path: Path, name: str, created: str) -> StoredMap:
    with Store(path) as store:
        return load_map(store, name)


def chosen_network(found: CurvatureMap, which: int) -> NetworkCurvature:
    """The network of a map, or its linear twin."""
    if not 0 <= which < len(found.networks):
        got = f"it has {len(found.networks)}, number {which} was asked for"
        raise InvalidInput(sentence("a map has its network and perhaps a linear twin", got))
    return found.networks[which]


_is_warming = threading.Event()


def warm_up() -> None:
    """Load what the next click will need (torch takes seconds) while the user looks at the page."""
    if not _is_warming.is_set():
        _is_warming.set()
        threading.Thread(target=_load, daemon=True).start()


def _load() -> None:
    import hessmap.measurement  # noqa: F401
