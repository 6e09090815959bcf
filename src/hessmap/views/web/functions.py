"""The Function and certificate screen: what ``hessmap function`` and ``hessmap certify`` found, kept as JSON files."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from hessmap.errors import DataFileError, require, sentence, unknown_name
from hessmap.results import BottleneckView, FunctionRank, RepresentationCost
from hessmap.views.interactive.functions import bottleneck_figures, gauge_data
from hessmap.views.tables import certificate as certificate_tables
from hessmap.views.tables import function as function_tables
from hessmap.views.web.maps import table
from hessmap.views.web.python_lines import result_lines
from hessmap.views.web.settings import Explorer

KINDS = ("function", "certificate")
_NAME = re.compile(r"[\w.-]{1,100}")


def functions_router(explorer: Explorer) -> APIRouter:
    """The routes of an explorer about functions and certificates."""
    router = APIRouter(prefix="/api")

    @router.get("/functions")
    def listed() -> dict[str, Any]:
        return {kind: [_summary(path) for path in _files(explorer.folder, kind)] for kind in KINDS}

    @router.get("/functions/{name}")
    def function(name: str) -> dict[str, Any]:
        return _function(name, *_read(explorer.folder, "function", name))

    @router.get("/certificates/{name}")
    def certificate(name: str) -> dict[str, Any]:
        return _certificate(name, *_read(explorer.folder, "certificate", name))

    return router


def _function(name: str, path: Path, content: dict[str, Any]) -> dict[str, Any]:
    with _readable(path):
        rank = FunctionRank.from_dict(content["function_rank"])
        view = BottleneckView.from_dict(content["bottleneck_view"])
        cost = RepresentationCost.from_dict(content["representation_cost"])
    figures = bottleneck_figures(view, result_lines(path, "function"))
    return {
        "name": name,
        "verdict": function_tables.function_verdict(rank, view, cost),
        "jacobians": function_tables.jacobian_rows(rank),
        "layers": table(function_tables.layers(view)),
        "costs": table(function_tables.costs(cost)),
        "notes": function_tables.small_print(rank, view, cost),
        "figures": [figure.to_dict() for figure in figures],
    }


def _certificate(name: str, path: Path, content: dict[str, Any]) -> dict[str, Any]:
    from hessmap.certificates import Certificate

    with _readable(path):
        found = Certificate.from_dict(content)
    return {
        "name": name,
        "confidence": found.confidence,
        "promise": certificate_tables.promise(found),
        "numbers": certificate_tables.numbers(found),
        "remarks": certificate_tables.remarks(found),
        "gauge": gauge_data(found, result_lines(path, "certificate")).to_dict(),
    }


def kept_result(folder: Path, kind: str, name: str, content: Any) -> None:
    """Write what a command printed, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind}-{name}.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(content), encoding="utf-8")
    fresh.replace(path)


def free_result_name(folder: Path, kind: str) -> str:
    """The time, with a number where two are made in one second."""
    wanted = time.strftime("%Y%m%d-%H%M%S")
    taken = {path.stem for path in _files(folder, kind)}
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if f"{kind}-{name}" not in taken)


def _files(folder: Path, kind: str) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob(f"{kind}-*.json"), key=lambda path: path.stat().st_mtime, reverse=True)


def _summary(path: Path) -> dict[str, Any]:
    name = path.stem.partition("-")[2]
    return {"name": name, "created": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(path.stat().st_mtime))}


def _read(folder: Path, kind: str, name: str) -> tuple[Path, dict[str, Any]]:
    """A kept result by a name that is no path: its file and what it holds."""
    must = "a name is made of letters, digits, '.', '-' and '_'"
    require(_NAME.fullmatch(name) is not None, must, f"got {name!r:.80}")
    known = {path.stem.partition("-")[2]: path for path in _files(folder, kind)}
    if name not in known:
        raise unknown_name(kind, name, known or ["(none yet)"])
    with _readable(known[name]):
        return known[name], json.loads(known[name].read_text(encoding="utf-8"))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """A file that is no result is refused in a sentence, whatever is wrong with it."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        must, remedy = "a kept result must be readable", "Delete it, and make it again"
        raise DataFileError(sentence(must, f"{path.name} is not ({type(error).__name__})", remedy)) from error
