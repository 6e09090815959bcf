"""The store: one SQLite file, written in transactions: nothing is lost and nothing stored twice."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from hessmap.errors import sentence
from hessmap.records.field_types import require_field_types
from hessmap.records.store.file import StoreError, damage_error, store_content, store_errors
from hessmap.records.store.schema import APPLICATION_ID, SCHEMA, SCHEMA_VERSION, transaction

Line = TypeVar("Line")


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
