"""Records of studies in the store: one transaction a case, nothing is lost and nothing stored twice.

``research/docs/studies.md`` explains every column.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hessmap.errors import sentence
from hessmap.records.record import decode
from hessmap.records.store import Store, StoreError
from hessmap.records.store.store import damage_error, store_content, store_errors, typed
from hessmap_research.runner.encoding import case_of_key
from hessmap_research.runner.row import Row

# The tables of studies, beside those of maps and tracks.
_TABLES = (
    """
    CREATE TABLE study (
        id         INTEGER PRIMARY KEY,
        name       TEXT    NOT NULL,
        version    INTEGER NOT NULL,
        num_done   INTEGER NOT NULL DEFAULT 0,
        num_failed INTEGER NOT NULL DEFAULT 0,
        seconds    REAL    NOT NULL DEFAULT 0,
        UNIQUE (name, version)
    )
    """,
    """
    CREATE TABLE result (
        id            INTEGER PRIMARY KEY,
        study_id      INTEGER NOT NULL REFERENCES study (id),
        data          TEXT    NOT NULL,
        data_hash     TEXT    NOT NULL,
        case_key      TEXT    NOT NULL,
        status        TEXT    NOT NULL CHECK (status IN ('done', 'failed')),
        record        TEXT,
        error         TEXT,
        attempts      INTEGER NOT NULL,
        seconds       REAL    NOT NULL,
        finished      TEXT    NOT NULL,
        provenance_id INTEGER NOT NULL REFERENCES provenance (id),
        UNIQUE (study_id, data_hash, case_key),
        CHECK ((status = 'done') = (record IS NOT NULL)),
        CHECK ((status = 'failed') = (error IS NOT NULL))
    )
    """,
    """
    CREATE TRIGGER count_inserted AFTER INSERT ON result BEGIN
        UPDATE study SET num_done = num_done + (new.status = 'done'), num_failed = num_failed + (new.status = 'failed'),
                         seconds = seconds + new.seconds WHERE id = new.study_id;
    END;
    """,
    """
    CREATE TRIGGER count_deleted AFTER DELETE ON result BEGIN
        UPDATE study SET num_done = num_done - (old.status = 'done'), num_failed = num_failed - (old.status = 'failed'),
                         seconds = seconds - old.seconds WHERE id = old.study_id;
    END;
    """,
    """
    CREATE TRIGGER count_updated AFTER UPDATE OF status, seconds ON result BEGIN
        UPDATE study SET num_done = num_done + (new.status = 'done') - (old.status = 'done'),
                         num_failed = num_failed + (new.status = 'failed') - (old.status = 'failed'),
                         seconds = seconds + new.seconds - old.seconds WHERE id = new.study_id;
    END;
    """,
    """
    CREATE VIEW readable AS
        SELECT study.name AS study, study.version, result.data, result.case_key AS "case", result.status, result.record,
               result.error, result.attempts, round(result.seconds, 3) AS seconds, result.finished,
               json_extract(provenance.content, '$.versions.hessmap') AS hessmap,
               json_extract(provenance.content, '$.versions.torch') AS torch, result.data_hash
        FROM result JOIN study ON study.id = result.study_id JOIN provenance ON provenance.id = result.provenance_id
    """,
    """
    CREATE VIEW failures AS
        SELECT study, version, data, "case", error, attempts, finished FROM readable WHERE status = 'failed'
    """,
    """
    CREATE VIEW overview AS
        SELECT name AS study, version, num_done AS done, num_failed AS failed, round(seconds, 1) AS seconds FROM study
    """,
)


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


class StudyStore(Store):
    """A store with the tables of studies: ``create`` makes them, and the file, where there are none.

    A store that has none reads as one in which no study has been run.
    """

    def __init__(self, path: Path, create: bool = False) -> None:
        super().__init__(path, create)
        try:
            self._has_tables = self._finds_tables()
            if create and not self._has_tables:
                self._make_tables()
        except BaseException:
            self.close()
            raise

    def _finds_tables(self) -> bool:
        """Whether the store has the tables of studies: all of them, or it is damaged."""
        found = {name for (name,) in self.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        missing = [table for table in ("study", "result") if table not in found]
        if len(missing) == 1:
            raise damage_error(self.path, f"no such table: {missing[0]}")
        return not missing

    def _make_tables(self) -> None:
        with self.transaction():
            if not self._finds_tables():  # another run may have been quicker
                for statement in _TABLES:
                    self.execute(statement)
        self._has_tables = True

    def study_id(self, name: str, version: int) -> int:
        """The number of a study's version in this store, given to it at its first run."""
        self.execute("INSERT OR IGNORE INTO study (name, version) VALUES (?, ?)", (name, version))
        ((study_id,),) = self.execute("SELECT id FROM study WHERE name = ? AND version = ?", (name, version))
        return int(study_id)

    def statuses(self, name: str, version: int, data_hash: str) -> dict[str, str]:
        """The stored cases of a study on some data: key -> "done" or "failed"."""
        if not self._has_tables:
            return {}
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

    def summaries(self) -> tuple[Summary, ...]:
        """The counters of every study, without touching a record."""
        if not self._has_tables:
            return ()
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
        if not self._has_tables:
            return ()
        query = f"SELECT content FROM provenance WHERE id IN (SELECT DISTINCT provenance_id {_FROM}) ORDER BY content"
        found = self.execute(query, (name, version))
        with store_content(self.path):
            return tuple(provenance_text(content) for (content,) in found)

    def _results(self, columns: str, name: str, version: int, data: str | None, status: str) -> list[tuple[Any, ...]]:
        if not self._has_tables:
            return []
        query = f"SELECT {columns} {_FROM} AND data_hash = ? AND data = ? AND status = ? ORDER BY result.id"
        hashes = f"SELECT data, data_hash, max(result.id) {_FROM} GROUP BY data, data_hash ORDER BY 3"
        newest = {name_of_data: data_hash for name_of_data, data_hash, _ in self.execute(hashes, (name, version))}
        found: list[tuple[Any, ...]] = []
        for name_of_data, data_hash in newest.items():
            if data in (None, name_of_data):
                found += self.execute(query, (name, version, data_hash, name_of_data, status))
        return found


def provenance_text(content: str) -> str:
    """The same text where it is a JSON object."""
    decode(content)
    return content


@contextmanager
def run_lock(store: Path, study: str) -> Iterator[None]:
    """The right to run a study into a store; an error names the process that has it already.

    The operating system releases the lock however the process ends.
    """
    path = store.with_name(f"{store.name}.{study.replace('/', '-')}.lock")
    with store_errors(store):
        file = path.open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            got = f"process {file.read().strip() or 'unknown'} is running {study} into {store}"
            raise StoreError(sentence("a study must have one run at a time", got, "Wait for it or stop it")) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


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
