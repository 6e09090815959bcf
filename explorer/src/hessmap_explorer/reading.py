"""What the screens read: records of the store under their names, the same file never twice."""

from __future__ import annotations

import os
import stat
import threading
from functools import lru_cache
from pathlib import Path

from hessmap.errors import DataFileError, InvalidInput, sentence
from hessmap.records import (
    CurvatureMap,
    MapSummary,
    NetworkCurvature,
    Store,
    StoredMap,
    TrackSummary,
    load_map,
    map_summaries,
    track_summaries,
)

_MOST_BYTES = 200_000_000  # of a kept result; the largest are some megabytes


def stored_maps(path: Path, refused: list[str]) -> tuple[MapSummary, ...]:
    """The maps of a store; none where there is no store yet. ``refused`` takes a sentence for each broken one."""
    if not path.exists():
        return ()
    with Store(path) as store:
        return map_summaries(store, refused=refused)


def stored_tracks(path: Path, refused: list[str]) -> tuple[TrackSummary, ...]:
    if not path.exists():
        return ()
    with Store(path) as store:
        return track_summaries(store, refused)


def stored_map(path: Path, name: str) -> StoredMap:
    """The map of a name; one that was read before is remembered as long as its summary is the same."""
    if not path.exists():
        raise InvalidInput(
            sentence("a map must be stored before it is shown", "nothing is stored yet", "Make a map first")
        )
    with Store(path) as store:
        found = map_summaries(store, name)
        return _read_map(path, found[0]) if found else load_map(store, name)  # which refuses the name


@lru_cache(maxsize=16)
def _read_map(path: Path, summary: MapSummary) -> StoredMap:
    with Store(path) as store:
        return load_map(store, summary.name)


def require_own_file(path: Path) -> None:
    """Refuse what is not an ordinary file of its folder: a link may lead to any file, a pipe never ends."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise _no_own_file(path)


def own_file_text(path: Path) -> str:
    """The text of an ordinary file; a link is not followed, also if it takes the place of the file just now."""
    try:
        with open(path, "rb", opener=_opened) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise _no_own_file(path)
            if found.st_size > _MOST_BYTES:
                got = f"{path.name!r} has {found.st_size:,}"
                raise DataFileError(sentence(f"a result must have at most {_MOST_BYTES:,} bytes", got))
            return file.read().decode("utf-8")
    except DataFileError:
        raise
    except OSError as error:
        raise _no_own_file(path) from error


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _no_own_file(path: Path) -> DataFileError:
    must, remedy = "a result must be an ordinary file that can be read", "Put a copy of it in its place"
    return DataFileError(sentence(must, f"{path.name!r} is a link, a folder or something else", remedy))


def chosen_network(found: CurvatureMap, which: int) -> NetworkCurvature:
    """The network of a map, or the one without activations."""
    if not 0 <= which < len(found.networks):
        got = f"it has {len(found.networks)}, number {which} was asked for"
        raise InvalidInput(sentence("a map has its network and, with ranks, the one without activations", got))
    return found.networks[which]


_is_warming = threading.Event()


def warm_up() -> None:
    """Load what the next click will need (torch takes seconds) while the user looks at the page."""
    if not _is_warming.is_set():
        _is_warming.set()
        threading.Thread(target=_load, daemon=True).start()


def _load() -> None:
    import hessmap.measurement  # noqa: F401
