"""Maps of curvature in the store: one line and one transaction a map, found by its name."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from itertools import count

from hessmap.errors import InvalidInput, sentence, unknown_name
from hessmap.results.maps import CurvatureMap
from hessmap.runs.store.store import Store


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


def add_map(store: Store, name: str, made: CurvatureMap, command: str = "", replace: bool = False) -> None:
    """Store a map under a name; one that is taken is refused unless ``replace``."""
    network, origin = made.network, made.provenance
    content = {} if origin is None else {"dtype": origin.dtype, "versions": origin.versions}
    provenance = json.dumps(content, sort_keys=True, separators=(",", ":"))
    values = (
        name,
        origin.created if origin and origin.created else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        made.title,
        network.description,
        network.loss,
        network.num_parameters,
        network.num_samples,
        network.risk,
        (origin.data_hash if origin else None) or "",
        command,
        made.to_json(),
        provenance,
    )
    with store.transaction():
        if replace:
            store.execute("DELETE FROM map WHERE name = ?", (name,))
        require_free(store, name)
        store.execute("INSERT OR IGNORE INTO provenance (content) VALUES (?)", (provenance,))
        store.execute(_ADD, values)


def require_free(store: Store, name: str) -> None:
    """Refuse a name under which a map is stored."""
    taken = store.execute("SELECT created FROM map WHERE name = ?", (name,))
    if taken:
        got, remedy = f"{store.path} has {name!r} of {taken[0][0]}", "Choose another name, or give --replace"
        raise InvalidInput(sentence("a map must have a name of its own", got, remedy))


def free_name(store: Store, wish: str) -> str:
    """The wish where no map has that name, else the wish with the first number that is free."""
    taken = {name for (name,) in store.execute("SELECT name FROM map")}
    names = (wish if number == 1 else f"{wish}-{number}" for number in count(1))
    return next(name for name in names if name not in taken)


def map_summaries(store: Store) -> tuple[MapSummary, ...]:
    """Every map, in the order in which they were stored; no record is touched."""
    return tuple(MapSummary(*line) for line in store.execute(f"SELECT {_SUMMARY} FROM map ORDER BY id"))


def load_map(store: Store, name: str) -> StoredMap:
    """The map of a name."""
    found = store.execute("SELECT command, record FROM map WHERE name = ?", (name,))
    if not found:
        known = [summary.name for summary in map_summaries(store)]
        if not known:
            raise InvalidInput(
                sentence("a map must be stored before it is shown", f"{store.path} has none", "Run hessmap map")
            )
        raise unknown_name("map", name, known)
    ((command, record),) = found
    return StoredMap(name, command, CurvatureMap.from_json(record))


_SUMMARY = "name, created, title, network, loss, num_parameters, num_samples, risk, data_hash, command"
_ADD = f"""
    INSERT INTO map ({_SUMMARY}, record, provenance_id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT id FROM provenance WHERE content = ?))
"""
