"""Errors as sentences: what hessmap refuses is 4xx with its own words, what nobody foresaw 500 without a trace."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from hessmap.errors import DataFileError, HessmapError, TooLarge, UnknownName, sentence
from hessmap.runs.store import StoreError

_LOG = logging.getLogger("hessmap.explorer")
_STATUS: tuple[tuple[type[HessmapError], int], ...] = (
    (UnknownName, 404),
    (StoreError, 409),
    (DataFileError, 404),
    (TooLarge, 413),
)


def answer_with_sentences(app: FastAPI) -> None:
    """Register the handlers of every kind of error."""
    app.add_exception_handler(HessmapError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unforeseen)


def error_answer(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status_code=status)


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
            "an address must be asked in its own way",
            f"{request.method} is not that of {request.url.path[:200]}",
        )
    if error.status_code == 400:
        must, got = "a request must hold what the page sends, as JSON", "it cannot be read"
    return error_answer(error.status_code, sentence(must, got))


async def _unforeseen(request: Request, error: Exception) -> JSONResponse:
    _LOG.error("hessmap must not fail like this: %s", request.url.path, exc_info=error)
    text = sentence(
        "hessmap must not fail like this", f"{type(error).__name__}; the terminal of hessmap serve says more"
    )
    return error_answer(500, text)
