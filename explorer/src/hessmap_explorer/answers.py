"""Answers as strict JSON, errors as sentences: what hessmap refuses is 4xx with its own words.

What a store or a folder holds may have been written by anyone. An entry that cannot be shown is refused by its name
(``shown_entry``); 500 is left to mistakes of the explorer itself.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from hessmap.errors import DataFileError, HessmapError, TooLarge, UnknownName, sentence
from hessmap.records.store import StoreError

_LOG = logging.getLogger("hessmap.explorer")


class BrokenEntry(HessmapError):
    """A stored entry cannot be shown; the message names it."""


_STATUS: tuple[tuple[type[HessmapError], int], ...] = (
    (UnknownName, 404),
    (StoreError, 409),
    (BrokenEntry, 409),
    (DataFileError, 404),
    (TooLarge, 413),
)


class Answer(JSONResponse):
    """Any content of dictionaries, lists, text and numbers as strict JSON.

    Numbers that are not finite are null. Text is escaped to ASCII: JSON may spell half of a surrogate pair, which
    cannot be encoded.
    """

    def render(self, content: Any) -> bytes:
        try:
            text = json.dumps(content, allow_nan=False, separators=(",", ":"))
        except ValueError:  # numbers that are not finite are rare: only then is the content walked through
            text = json.dumps(_finite(content), allow_nan=False, separators=(",", ":"))
        return text.encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def shown_entry(what: str) -> Iterator[None]:
    """Around the work from stored content to an ``Answer``: whatever it raises is a refusal that names the entry.

    Args:
        what: The entry, as ``"the map 'run1'"``.

    Raises:
        BrokenEntry: If anything but an error of hessmap's own is raised inside.
        HessmapError: Errors of hessmap's own, with the entry in front unless they are about a name, store or file.
    """
    try:
        yield
    except (UnknownName, StoreError, DataFileError):
        raise
    except HessmapError as error:
        raise type(error)(f"{what}: {error}") from error
    except Exception as error:
        _LOG.warning("%s cannot be shown", what, exc_info=error)
        remedy = "Make it again; the terminal of hessmap serve shows the traceback"
        raise BrokenEntry(
            sentence(f"{what} must be as hessmap writes it", f"showing it raised {type(error).__name__}", remedy)
        ) from error


def answer_with_sentences(app: FastAPI) -> None:
    """Register the handlers of every kind of error."""
    app.add_exception_handler(HessmapError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(OSError, _no_file)
    app.add_exception_handler(RecursionError, _too_deep)
    app.add_exception_handler(Exception, _unforeseen)


def error_answer(status: int, text: str) -> JSONResponse:
    return Answer({"error": text}, status_code=status)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 400)
    return error_answer(status, str(error))


async def _malformed(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first: dict[str, Any] = dict(error.errors()[0])
    place = " of ".join(str(part) for part in reversed(first["loc"]) if part not in ("query", "body", "path"))
    got = str(first["msg"])
    return error_answer(
        422, sentence(f"{place or 'a request'} must be as the page sends it", got[:1].lower() + got[1:])
    )


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    must, got = "an address of the explorer must be one of its pages", f"there is none at {request.url.path[:200]}"
    if error.status_code == 405:
        must, got = (
            "an address must be requested by its own method",
            f"{request.method} is not that of {request.url.path[:200]}",
        )
    if error.status_code == 400:
        must, got = "a request must contain what the page sends, as JSON", "it cannot be read"
    return error_answer(error.status_code, sentence(must, got))


async def _no_file(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, OSError)
    name = f" ({error.filename!r})" if error.filename else ""
    got = f"{error.strerror or type(error).__name__}{name}"
    return error_answer(409, sentence("the files of the explorer must be readable and writable", got))


async def _too_deep(request: Request, error: Exception) -> JSONResponse:
    return error_answer(400, sentence("lists and objects may be nested a few hundred times", "these are nested deeper"))


async def _unforeseen(request: Request, error: Exception) -> JSONResponse:
    _LOG.error("this is a bug in hessmap: %s", request.url.path, exc_info=error)
    text = sentence("this is a bug in hessmap", f"{type(error).__name__}; the terminal of hessmap serve says more")
    return error_answer(500, text)
