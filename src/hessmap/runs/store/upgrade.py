"""From an older schema to the present one: all of the way, or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from hessmap.runs.store.schema import SCHEMA_VERSION, UPGRADES


def upgrade(connection: sqlite3.Connection) -> None:
    """Take the steps that the file lacks. Its version is read inside: another process may have been quicker."""
    with transaction(connection):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for statements in UPGRADES[version - 1 :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


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
