"""The store: one SQLite file, its tables, its transactions and its errors."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from hessmap.errors import HessmapError, sentence
from hessmap.records.strict_json import require_field_types

DEFAULT_STORE = Path("hessmap-runs/hessmap.sqlite")
_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SPACE_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


class StoreError(HessmapError, OSError):
    """The store cannot be read or written; nothing that it holds was changed."""


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn an error of SQLite or of the file system into a StoreError that says what to do about it."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(_explanation(path, error)) from error
    except UnicodeDecodeError as error:  # of SQLite's own words about the damage
        raise damage_error(path, "its schema is not text") from error
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(sentence("the store must be readable and writable", f"{path}: {error.strerror}")) from error


@contextmanager
def store_content(path: Path, entry: str = "") -> Iterator[None]:
    """Around lines that take rows apart: whatever they raise means that another than hessmap wrote to the store.

    ``entry`` names the row, at the beginning of what is said about it.
    """
    try:
        yield
    except StoreError:
        raise
    except Exception as error:  # other columns, no JSON, values of other types
        detail = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise damage_error(path, f"{entry}{detail}") from error


def damage_error(path: Path, detail: str) -> StoreError:
    return StoreError(
        sentence(
            "the store must be a sound SQLite file",
            f"{path} is damaged ({detail})",
            "It was not changed: move it away or restore a copy, then run again",
        )
    )


def _explanation(path: Path, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the primary code
    if code in _DAMAGE_CODES or str(error).startswith("no such "):  # a table or column that every store has
        return str(damage_error(path, str(error)))
    if code in _SPACE_CODES:
        remedy = "What was stored is intact: make room and run the same command to continue"
        return sentence("the disk must have room for the store", f"writing {path} failed ({error})", remedy)
    if code == sqlite3.SQLITE_BUSY:
        return sentence("the store must not be locked by another program", f"{path} is", "Close it there and run again")
    return sentence("the store must be readable and writable", f"{path}: {error}")


APPLICATION_ID = 0x4845534D  # "HESM" in the header of the file: it says whose SQLite file this is
SCHEMA_VERSION = 5  # any change of the tables is another version, which other versions of hessmap refuse

SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};

CREATE TABLE provenance (
    id      INTEGER PRIMARY KEY,
    content TEXT NOT NULL UNIQUE
);

CREATE TABLE map (
    id             INTEGER PRIMARY KEY,
    name           TEXT    NOT NULL UNIQUE,
    created        TEXT    NOT NULL,
    title          TEXT    NOT NULL,
    network        TEXT    NOT NULL,
    loss           TEXT    NOT NULL,
    num_parameters INTEGER NOT NULL,
    num_samples    INTEGER NOT NULL,
    risk           REAL,
    data_hash      TEXT    NOT NULL,
    options        TEXT,
    record         TEXT    NOT NULL,
    provenance_id  INTEGER NOT NULL REFERENCES provenance (id)
);

CREATE VIEW maps AS
    SELECT map.name, map.created, map.title, map.network, map.loss, map.num_parameters, map.num_samples, map.risk,
           map.options, json_extract(provenance.content, '$.versions.hessmap') AS hessmap,
           json_extract(provenance.content, '$.versions.torch') AS torch, map.data_hash
    FROM map JOIN provenance ON provenance.id = map.provenance_id;

CREATE VIEW map_layers AS
    SELECT map.name AS map, json_extract(layer.value, '$.name') AS layer, json_extract(layer.value, '$.shape') AS shape,
           json_extract(layer.value, '$.num_parameters') AS num_parameters,
           json_extract(layer.value, '$.rank.value') AS rank,
           json_extract(layer.value, '$.top_eigenvalue') AS top_eigenvalue,
           json_extract(layer.value, '$.trace') AS trace,
           json_extract(layer.value, '$.curvature_share') AS curvature_share,
           json_extract(layer.value, '$.factors.input_ratio') AS input_ratio,
           json_extract(layer.value, '$.factors.outlier_share') AS outlier_share,
           json_extract(layer.value, '$.factors.kronecker_overlap') AS kronecker_overlap
    FROM map, json_each(map.record, '$.network.layers') AS layer;

CREATE TABLE track (
    id             INTEGER PRIMARY KEY,
    name           TEXT    NOT NULL UNIQUE,
    created        TEXT    NOT NULL,
    network        TEXT    NOT NULL,
    loss           TEXT    NOT NULL,
    part           TEXT    NOT NULL,
    num_parameters INTEGER NOT NULL,
    num_samples    INTEGER NOT NULL,
    data_hash      TEXT    NOT NULL,
    share          REAL,
    seconds        REAL    NOT NULL,
    spent          REAL    NOT NULL,
    settings       TEXT    NOT NULL,
    provenance_id  INTEGER NOT NULL REFERENCES provenance (id)
);

CREATE TABLE track_point (
    id       INTEGER PRIMARY KEY,
    track_id INTEGER NOT NULL REFERENCES track (id) ON DELETE CASCADE,
    step     INTEGER NOT NULL,
    measured TEXT    NOT NULL,
    record   TEXT    NOT NULL,
    UNIQUE (track_id, step)
);

CREATE VIEW tracks AS
    SELECT track.name, track.created, track.network, track.loss, track.part, track.num_parameters, track.num_samples,
           (SELECT count(*) FROM track_point WHERE track_id = track.id) AS num_points,
           (SELECT max(step) FROM track_point WHERE track_id = track.id) AS last_step,
           track.share, round(track.seconds, 3) AS seconds, round(track.spent, 3) AS spent, track.settings,
           json_extract(provenance.content, '$.versions.hessmap') AS hessmap,
           json_extract(provenance.content, '$.versions.torch') AS torch, track.data_hash
    FROM track JOIN provenance ON provenance.id = track.provenance_id;

CREATE VIEW track_points AS
    SELECT track.name AS track, step, json_extract(record, '$.risk') AS risk,
           json_extract(record, '$.gradient_norm') AS gradient_norm,
           json_extract(record, '$.eigenvalues.array[0]') AS sharpness,
           json_extract(record, '$.trace.value') AS trace,
           json_extract(record, '$.trace.standard_error') AS trace_standard_error,
           json_extract(record, '$.gradient_overlap.value') AS gradient_overlap,
           json_extract(record, '$.converged') AS converged, json_extract(record, '$.num_products') AS num_products,
           round(json_extract(record, '$.cost'), 3) AS cost, measured
    FROM track JOIN track_point ON track_point.track_id = track.id;
"""


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that holds the right to write from its beginning, and is undone by any error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk makes SQLite roll back by itself
            connection.execute("ROLLBACK")
        raise


Line = TypeVar("Line")


class Store:
    """An open store, to be used as a context manager.

    Args:
        path: The SQLite file.
        create: Whether to create the file if it does not exist; an existing one is never replaced. Defaults to False.

    Raises:
        StoreError: If the file does not exist, is damaged, or is not a store of this version.

    Notes:
        It is written by one process, and can be read by any number at the same time (WAL). With synchronous = NORMAL a
        killed process loses nothing; a power cut may lose the last transactions, and never the file.
    """

    def __init__(self, path: Path, create: bool = False) -> None:
        self.path = path
        self._provenance: dict[str, int] = {}
        with store_errors(path):
            if create and not path.exists():
                _create(path)
            if not path.exists():
                got, remedy = f"there is none at {path}", "hessmap map makes one"
                raise StoreError(sentence("the store must exist", got, remedy))
            if path.stat().st_size == 0:
                raise damage_error(path, "the file is empty")
            self._connection = sqlite3.connect(path, timeout=30.0, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        with store_errors(self.path):
            self._connection.close()

    def _open(self) -> None:
        connection = self._connection
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        if owner != APPLICATION_ID:
            raise StoreError(sentence("the store must be a file of hessmap", f"{self.path} is another SQLite file"))
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != SCHEMA_VERSION:
            got, remedy = f"{self.path} has version {version}", "Use the hessmap that made it, or give another --store"
            raise StoreError(sentence(f"this hessmap reads stores of version {SCHEMA_VERSION}", got, remedy))
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")

    def execute(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows that a statement yields."""
        with store_errors(self.path):
            return self._connection.execute(query, values).fetchall()

    def lines(self, kind: type[Line], query: str, values: Sequence[Any] = ()) -> tuple[Line, ...]:
        """The rows that a statement yields, each as one of a dataclass whose annotations they must agree with."""
        found = self.execute(query, values)
        with store_content(self.path):
            return tuple(typed(kind, dict(zip(kind.__annotations__, line, strict=True))) for line in found)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of what is written inside, or nothing."""
        try:
            with store_errors(self.path), transaction(self._connection):
                yield
        except BaseException:
            self._provenance.clear()  # lines that were written inside are undone
            raise

    def require_sound(self) -> None:
        """Walk the whole file and report damage: to be asked before writing to it."""
        ((verdict,),) = self.execute("PRAGMA quick_check(1)")
        if verdict != "ok":
            raise damage_error(self.path, " ".join(verdict.split()))

    def provenance_id(self, content: str) -> int:
        """The number of a provenance (JSON) in this store, given to it when it is first met."""
        if content not in self._provenance:
            self.execute("INSERT OR IGNORE INTO provenance (content) VALUES (?)", (content,))
            ((self._provenance[content],),) = self.execute("SELECT id FROM provenance WHERE content = ?", (content,))
        return self._provenance[content]


def typed(kind: type[Line], fields: dict[str, Any]) -> Line:
    """One of a dataclass, of fields that agree with its annotations."""
    require_field_types(kind, fields)
    return kind(**fields)


def _create(path: Path) -> None:
    """Make an empty store whole, then put it in its place: nobody ever sees half a store."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        fresh = Path(folder) / path.name
        with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(SCHEMA)
        with suppress(FileExistsError):  # another run was quicker: its store is as good
            os.link(fresh, path)
