"""The file of a store: where it is, who may write to it, and what can go wrong with it, said in one sentence."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hessmap.errors import HessmapError, sentence

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
            "It was left as it is: move it away or restore a copy, then run again",
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
