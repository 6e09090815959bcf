"""What can go wrong with the file of a store, said in one sentence instead of SQLite's three words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hessmap.errors import HessmapError, sentence


class StoreError(HessmapError, OSError):
    """The store cannot be read or written; nothing that it holds was changed."""


_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn an error of SQLite or of the file system into a StoreError that says what to do about it."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(_explained(path, error)) from error
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(sentence("the store must be readable and writable", f"{path}: {error.strerror}")) from error


def corrupted(path: Path, detail: str) -> StoreError:
    return StoreError(
        sentence(
            "the store must be a sound SQLite file",
            f"{path} is damaged ({detail})",
            "It was left as it is: move it away or restore a copy, then run again",
        )
    )


def _explained(path: Path, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the primary code
    if code in _CORRUPT:
        return str(corrupted(path, str(error)))
    if code in _NO_ROOM:
        remedy = "What was stored is intact: make room and run the same command to continue"
        return sentence("the disk must have room for the store", f"writing {path} failed ({error})", remedy)
    if code == sqlite3.SQLITE_BUSY:
        return sentence("the store must not be locked by another program", f"{path} is", "Close it there and run again")
    return sentence("the store must be readable and writable", f"{path}: {error}")
