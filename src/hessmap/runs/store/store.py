"""The store: one SQLite file, one transaction a case, nothing lost and nothing doubled."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from hessmap.errors import sentence
from hessmap.results.encoding import decode
from hessmap.results.field_types import require_field_types
from hessmap.runs.encoding import case_of_key
from hessmap.runs.row import Row
from hessmap.runs.store.file import StoreError, damage_error, store_content, store_errors
from hessmap.runs.store.schema import APPLICATION_ID, SCHEMA, SCHEMA_VERSION, transaction

Line = TypeVar("Line")


@dataclass(frozen=True)
class Outcome:
    """What came of one case: a record or an error (both as text), and what it took."""

    key: str
    record: str | None
    error: str | None
    seconds: float
    provenance: str
    attempts: int = 1

    @property
    def is_done(self) -> bool:
        return self.record is not None


@dataclass(frozen=True)
class Summary:
    """The counters of one version of one study."""

    study: str
    version: int
    num_done: int
    num_failed: int
    seconds: float


@dataclass(frozen=True)
class Failure:
    """A stored failure."""

    key: str
    error: str
    attempts: int


class Store:
    """An open store. ``create`` makes the file where there is none; it never replaces one.

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
                got, remedy = f"there is none at {path}", "Run a study or a map first"
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

    def study_id(self, name: str, version: int) -> int:
        """The number of a study's version in this store, given to it at its first run."""
        self.execute("INSERT OR IGNORE INTO study (name, version) VALUES (?, ?)", (name, version))
        ((study_id,),) = self.execute("SELECT id FROM study WHERE name = ? AND version = ?", (name, version))
        return int(study_id)

    def statuses(self, name: str, version: int, data_hash: str) -> dict[str, str]:
        """The stored cases of a study on some data: key -> "done" or "failed"."""
        query = f"SELECT case_key, status {_FROM} AND data_hash = ?"
        return dict(self.execute(query, (name, version, data_hash)))

    def add(self, study_id: int, data: str, data_hash: str, outcome: Outcome, replace: bool = False) -> None:
        """Store what came of a case, in a transaction of its own.

        A stored failure gives way to a new outcome; a stored record only where ``replace`` says so.
        """
        values = (
            study_id,
            data,
            data_hash,
            outcome.key,
            "done" if outcome.is_done else "failed",
            outcome.record,
            outcome.error,
            outcome.attempts,
            outcome.seconds,
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            self.provenance_id(outcome.provenance),
            replace,
        )
        self.execute(_ADD, values)

    def provenance_id(self, content: str) -> int:
        """The number of a provenance (JSON) in this store, given to it when it is first met."""
        if content not in self._provenance:
            self.execute("INSERT OR IGNORE INTO provenance (content) VALUES (?)", (content,))
            ((self._provenance[content],),) = self.execute("SELECT id FROM provenance WHERE content = ?", (content,))
        return self._provenance[content]

    def summaries(self) -> tuple[Summary, ...]:
        """The counters of every study, without touching a record."""
        query = "SELECT name, version, num_done, num_failed, seconds FROM study ORDER BY name, version"
        return self.lines(Summary, query)

    def rows(self, name: str, version: int, data: str | None = None) -> tuple[Row, ...]:
        """The cases that are done with their records, in the order in which they were first stored.

        Of a data set whose content changed between runs, the content of the newest result counts.
        """
        found = self._results("result.case_key, result.record", name, version, data, "done")
        with store_content(self.path):
            return tuple(Row(case_of_key(key), decode(record)) for key, record in found)

    def failures(self, name: str, version: int, data: str | None = None) -> tuple[Failure, ...]:
        found = self._results("result.case_key, result.error, result.attempts", name, version, data, "failed")
        with store_content(self.path):
            return tuple(typed(Failure, {"key": key, "error": error, "attempts": n}) for key, error, n in found)

    def provenances(self, name: str, version: int) -> tuple[str, ...]:
        """The different provenances of a study's stored results, as JSON."""
        query = f"SELECT content FROM provenance WHERE id IN (SELECT DISTINCT provenance_id {_FROM}) ORDER BY content"
        found = self.execute(query, (name, version))
        with store_content(self.path):
            return tuple(provenance_text(content) for (content,) in found)

    def _results(self, columns: str, name: str, version: int, data: str | None, status: str) -> list[tuple[Any, ...]]:
        query = f"SELECT {columns} {_FROM} AND data_hash = ? AND data = ? AND status = ? ORDER BY result.id"
        hashes = f"SELECT data, data_hash, max(result.id) {_FROM} GROUP BY data, data_hash ORDER BY 3"
        newest = {name_of_data: data_hash for name_of_data, data_hash, _ in self.execute(hashes, (name, version))}
        found: list[tuple[Any, ...]] = []
        for name_of_data, data_hash in newest.items():
            if data in (None, name_of_data):
                found += self.execute(query, (name, version, data_hash, name_of_data, status))
        return found


def typed(kind: type[Line], fields: dict[str, Any]) -> Line:
    """One of a dataclass, of fields that agree with its annotations."""
    require_field_types(kind, fields)
    return kind(**fields)


def provenance_text(content: str) -> str:
    """The same text where it is a JSON object."""
    decode(content)
    return content


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


_FROM = "FROM result JOIN study ON study.id = result.study_id WHERE study.name = ? AND study.version = ?"
_ADD = """
    INSERT INTO result (study_id, data, data_hash, case_key, status, record, error, attempts, seconds, finished,
                        provenance_id)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
    ON CONFLICT (study_id, data_hash, case_key) DO UPDATE
    SET data = ?2, status = ?5, record = ?6, error = ?7, attempts = ?8, seconds = ?9, finished = ?10,
        provenance_id = ?11
    WHERE status = 'failed' OR ?12
"""
