"""Maps and tracks of curvature in the store, each under a name of its own; a track is written point by point."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from itertools import count
from typing import Literal

from hessmap.errors import InvalidInput, sentence, unknown_name
from hessmap.results import Provenance
from hessmap.results.encoding import decode, encode
from hessmap.results.maps import CurvatureMap
from hessmap.results.tracks import CurvatureTrack, TrackPoint
from hessmap.runs.store.file import store_content
from hessmap.runs.store.store import Store, typed

Kind = Literal["map", "track"]


@dataclass(frozen=True)
class MapSummary:
    """What the store says of a map without reading its record; ``risk`` is None where it is not a number."""

    name: str
    created: str
    title: str
    network: str
    loss: str
    num_parameters: int
    num_samples: int
    risk: float | None
    data_hash: str
    command: str


@dataclass(frozen=True)
class StoredMap:
    """A map under its name, and the command that made it (empty where no command did)."""

    name: str
    command: str
    record: CurvatureMap


@dataclass(frozen=True)
class TrackSummary:
    """What the store says of a track without reading its points."""

    name: str
    created: str
    network: str
    loss: str
    part: str
    num_parameters: int
    num_samples: int
    num_points: int
    last_step: int | None
    share: float | None
    seconds: float
    spent: float


def free_name(store: Store, kind: Kind, wanted: str) -> str:
    """The wanted name where no map or track has it, else the wanted one with the first number that is free."""
    taken = {name for (name,) in store.execute(f"SELECT name FROM {kind}")}
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
    return next(name for name in names if name not in taken)


def add_map(store: Store, name: str, made: CurvatureMap, command: str = "", replace: bool = False) -> None:
    """Store a map under a name; one that is taken is refused unless ``replace``."""
    network, origin = made.network, made.provenance
    with store.transaction():
        if replace:
            store.execute("DELETE FROM map WHERE name = ?", (name,))
        require_free_map(store, name)
        values = (
            name,
            origin.created if origin and origin.created else _now(),
            made.title,
            network.description,
            network.loss,
            network.num_parameters,
            network.num_samples,
            network.risk,
            (origin.data_hash if origin else None) or "",
            command,
            made.to_json(),
            _provenance_id(store, origin),
        )
        store.execute(f"INSERT INTO map ({_MAP}, record, provenance_id) VALUES ({_places(values)})", values)


def require_free_map(store: Store, name: str) -> None:
    """Refuse a name under which a map is stored."""
    taken = store.execute("SELECT created FROM map WHERE name = ?", (name,))
    if taken:
        got, remedy = f"{store.path} has {name!r} of {taken[0][0]}", "Choose another name, or give --replace"
        raise InvalidInput(sentence("a map must have a name of its own", got, remedy))


def map_summaries(store: Store) -> tuple[MapSummary, ...]:
    """Every map, in the order in which they were stored; no record is touched."""
    return store.lines(MapSummary, f"SELECT {_MAP} FROM map ORDER BY id")


def load_map(store: Store, name: str) -> StoredMap:
    """The map of a name."""
    found = store.execute("SELECT command, record FROM map WHERE name = ?", (name,))
    if not found:
        raise _not_stored(store, "map", name, "Run hessmap map")
    ((command, record),) = found
    with store_content(store.path):
        return typed(StoredMap, {"name": name, "command": command, "record": CurvatureMap.from_json(record)})


def add_track(store: Store, made: CurvatureTrack) -> None:
    """Store a track under its name, which must be free, with the points that it has."""
    with store.transaction():
        require_free_track(store, made.name)
        columns = [getattr(made, column) for column in _TRACK.split(", ")[:-1]]
        values = (*columns, encode(made.settings), _now(), _provenance_id(store, made.provenance))
        store.execute(f"INSERT INTO track ({_TRACK}, created, provenance_id) VALUES ({_places(values)})", values)
        for point in made.points:
            _write_point(store, made.name, point)


def add_point(store: Store, name: str, point: TrackPoint, seconds: float, spent: float) -> None:
    """Store a point of a track, in the place of an earlier one of the same step, and the times up to it."""
    with store.transaction():
        _write_point(store, name, point)
        set_times(store, name, seconds, spent)


def set_times(store: Store, name: str, seconds: float, spent: float) -> None:
    """Write how long a training was watched, and how much of it was spent on measuring."""
    store.execute("UPDATE track SET seconds = ?, spent = ? WHERE name = ?", (seconds, spent, name))


def drop_points(store: Store, name: str, from_step: int) -> None:
    """Forget the points from a step on."""
    store.execute(f"DELETE FROM track_point WHERE track_id = {_TRACK_ID} AND step >= ?", (name, from_step))


def drop_track(store: Store, name: str) -> None:
    """Forget a track and its points."""
    store.execute("DELETE FROM track WHERE name = ?", (name,))


def require_free_track(store: Store, name: str) -> None:
    """Refuse a name under which a track is stored."""
    taken = [track for track in track_summaries(store) if track.name == name]
    if taken:
        got = f"{store.path} has {name!r} with {taken[0].num_points} points, the last at step {taken[0].last_step}"
        remedy = "Choose another name, or say resume=True to go on with it or replace=True to forget it"
        raise InvalidInput(sentence("a track must have a name of its own", got, remedy))


def track_summaries(store: Store) -> tuple[TrackSummary, ...]:
    """Every track, in the order in which they were stored; no point is read."""
    columns = ", ".join(TrackSummary.__dataclass_fields__)
    return store.lines(TrackSummary, f"SELECT {columns} FROM tracks")


def load_track(store: Store, name: str) -> CurvatureTrack:
    """The track of a name with its points in the order of their steps."""
    found = store.execute(f"SELECT {_TRACK} FROM track WHERE name = ?", (name,))
    if not found:
        raise _not_stored(store, "track", name, "hessmap.Tracker makes one")
    head = dict(zip(_TRACK.split(", "), found[0], strict=True))
    query = f"SELECT record FROM track_point WHERE track_id = {_TRACK_ID} ORDER BY step"
    records = store.execute(query, (name,))
    with store_content(store.path):
        points = tuple(TrackPoint.from_json(record) for (record,) in records)
        return typed(CurvatureTrack, head | {"settings": decode(head["settings"]), "points": points})


def _write_point(store: Store, name: str, point: TrackPoint) -> None:
    store.execute(_ADD_POINT, (name, point.step, _now(), point.to_json()))


def _provenance_id(store: Store, origin: Provenance | None) -> int:
    """The line of the provenance in the store, written where it is new."""
    content = {} if origin is None else {"dtype": origin.dtype, "versions": origin.versions}
    return store.provenance_id(json.dumps(content, sort_keys=True, separators=(",", ":")))


def _not_stored(store: Store, kind: Kind, name: str, remedy: str) -> InvalidInput:
    known = [str(found) for (found,) in store.execute(f"SELECT name FROM {kind} ORDER BY id")]
    if known:
        return unknown_name(kind, name, known)
    return InvalidInput(sentence(f"a {kind} must be stored before it is shown", f"{store.path} has none", remedy))


def _places(values: tuple[object, ...]) -> str:
    return ", ".join("?" for _ in values)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


_MAP = "name, created, title, network, loss, num_parameters, num_samples, risk, data_hash, command"
_TRACK = "name, network, loss, part, num_parameters, num_samples, data_hash, share, seconds, spent, settings"
_TRACK_ID = "(SELECT id FROM track WHERE name = ?)"
_ADD_POINT = f"""
    INSERT INTO track_point (track_id, step, measured, record) VALUES ({_TRACK_ID}, ?, ?, ?)
    ON CONFLICT (track_id, step) DO UPDATE SET measured = excluded.measured, record = excluded.record
"""
