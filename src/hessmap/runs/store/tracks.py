"""Tracks of curvature in the store: one line a track, and one line and one transaction a point."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from itertools import count

from hessmap.errors import InvalidInput, sentence, unknown_name
from hessmap.results.tracks import CurvatureTrack, TrackPoint
from hessmap.runs.encoding import decode, encode
from hessmap.runs.store.store import Store


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


def add_track(store: Store, made: CurvatureTrack) -> None:
    """Store a track under its name, which must be free, with the points that it has."""
    origin = made.provenance
    content = {} if origin is None else {"dtype": origin.dtype, "versions": origin.versions}
    provenance = json.dumps(content, sort_keys=True, separators=(",", ":"))
    values = (
        made.name,
        _now(),
        made.network,
        made.loss,
        made.part,
        made.num_parameters,
        made.num_samples,
        made.data_hash,
        made.share,
        made.seconds,
        made.spent,
        encode(made.settings),
        provenance,
    )
    with store.transaction():
        require_free_track(store, made.name)
        store.execute("INSERT OR IGNORE INTO provenance (content) VALUES (?)", (provenance,))
        store.execute(_ADD, values)
        for point in made.points:
            _write_point(store, made.name, point)


def add_point(store: Store, name: str, point: TrackPoint, seconds: float, spent: float) -> None:
    """Store a point of a track, in the place of an earlier one of the same step, and the times up to it."""
    with store.transaction():
        _write_point(store, name, point)
        store.execute("UPDATE track SET seconds = ?, spent = ? WHERE name = ?", (seconds, spent, name))


def set_times(store: Store, name: str, seconds: float, spent: float) -> None:
    """Write how long a training was watched, and how much of it was spent on measuring."""
    store.execute("UPDATE track SET seconds = ?, spent = ? WHERE name = ?", (seconds, spent, name))


def drop_points(store: Store, name: str, from_step: int) -> None:
    """Forget the points from a step on."""
    store.execute(f"DELETE FROM track_point WHERE track_id = {_ID} AND step >= ?", (name, from_step))


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


def free_track_name(store: Store, wish: str) -> str:
    """The wish where no track has that name, else the wish with the first number that is free."""
    taken = {name for (name,) in store.execute("SELECT name FROM track")}
    names = (wish if number == 1 else f"{wish}-{number}" for number in count(1))
    return next(name for name in names if name not in taken)


def track_summaries(store: Store) -> tuple[TrackSummary, ...]:
    """Every track, in the order in which they were stored; no point is read."""
    columns = ", ".join(TrackSummary.__dataclass_fields__)
    return tuple(TrackSummary(*line) for line in store.execute(f"SELECT {columns} FROM tracks"))


def load_track(store: Store, name: str) -> CurvatureTrack:
    """The track of a name with its points in the order of their steps."""
    found = store.execute(f"SELECT {_HEAD} FROM track WHERE name = ?", (name,))
    if not found:
        known = [summary.name for summary in track_summaries(store)]
        if not known:
            must, remedy = "a track must be stored before it is shown", "hessmap.Tracker makes one"
            raise InvalidInput(sentence(must, f"{store.path} has none", remedy))
        raise unknown_name("track", name, known)
    head = dict(zip(_HEAD.split(", "), found[0], strict=True))
    query = f"SELECT record FROM track_point WHERE track_id = {_ID} ORDER BY step"
    points = tuple(TrackPoint.from_json(record) for (record,) in store.execute(query, (name,)))
    return CurvatureTrack(**head | {"settings": decode(head["settings"]), "points": points})


def _write_point(store: Store, name: str, point: TrackPoint) -> None:
    store.execute(_ADD_POINT, (name, point.step, _now(), point.to_json()))


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


_ID = "(SELECT id FROM track WHERE name = ?)"
_HEAD = "name, network, loss, part, num_parameters, num_samples, data_hash, share, seconds, spent, settings"
_ADD = """
    INSERT INTO track (name, created, network, loss, part, num_parameters, num_samples, data_hash, share, seconds,
                       spent, settings, provenance_id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT id FROM provenance WHERE content = ?))
"""
_ADD_POINT = f"""
    INSERT INTO track_point (track_id, step, measured, record) VALUES ({_ID}, ?, ?, ?)
    ON CONFLICT (track_id, step) DO UPDATE SET measured = excluded.measured, record = excluded.record
"""
