"""The Function and certificate screen: what ``hessmap function`` and ``hessmap certify`` found, kept as JSON files."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from hessmap.errors import DataFileError, InvalidInput, require, sentence, unknown_name
from hessmap.records import BottleneckView, FunctionRank, RepresentationCost
from hessmap.records.strict_json import parsed_json
from hessmap.views.tables import certificate as certificate_tables
from hessmap.views.tables import function as function_tables
from hessmap_explorer.answers import Answer, shown_entry
from hessmap_explorer.figures.functions import bottleneck_figures, gauge_data
from hessmap_explorer.maps import table
from hessmap_explorer.python_lines import result_lines
from hessmap_explorer.reading import own_file_text
from hessmap_explorer.settings import Explorer

KINDS = ("function", "certificate")
_NAME = re.compile(r"[\w.-]{1,100}")


def functions_router(explorer: Explorer) -> APIRouter:
    """The routes of an explorer about functions and certificates."""
    router = APIRouter(prefix="/api")

    @router.get("/functions")
    def listed() -> Answer:
        refused: list[str] = []
        kept = {kind: [one.described() for one in _kept(explorer.folder, kind, refused)] for kind in KINDS}
        return Answer({**kept, "refused": refused})

    @router.get("/functions/{name}")
    def function(name: str) -> Answer:
        with shown_entry(f"the function {name!r}"):
            return Answer(_function(name, *_read(explorer.folder, "function", name)))

    @router.get("/certificates/{name}")
    def certificate(name: str) -> Answer:
        with shown_entry(f"the certificate {name!r}"):
            return Answer(_certificate(name, *_read(explorer.folder, "certificate", name)))

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


@dataclass(frozen=True)
class _Kept:
    """A file of the folder that is an ordinary file under a name that can be asked for."""

    name: str
    path: Path
    modified: float

    def described(self) -> dict[str, str]:
        return {"name": self.name, "created": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.modified))}


def kept_result(folder: Path, kind: str, name: str, content: Any) -> None:
    """Write what a command printed, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as place:  # no name that could be a link by now
        fresh = Path(place) / "result.json"
        fresh.write_text(json.dumps(content), encoding="utf-8")
        fresh.replace(folder / f"{kind}-{name}.json")


def free_result_name(folder: Path, kind: str) -> str:
    """The time, with a number where two are made in one second."""
    wanted = time.strftime("%Y%m%d-%H%M%S")
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
    return next(name for name in names if not os.path.lexists(folder / f"{kind}-{name}.json"))


def _kept(folder: Path, kind: str, refused: list[str]) -> list[_Kept]:
    """The kept results of a kind, newest first; ``refused`` takes a sentence for each file that is none."""
    found = []
    for path in folder.glob(f"{kind}-*.json"):
        name = path.stem.partition("-")[2]
        try:
            state = path.lstat()
            must = "a kept result must be an ordinary file with a name of letters, digits, '.', '-' and '_'"
            require(stat.S_ISREG(state.st_mode) and _NAME.fullmatch(name) is not None, must, f"{path.name!r} is not")
        except FileNotFoundError:  # just deleted
            continue
        except InvalidInput as error:
            refused.append(str(error))
        else:
            found.append(_Kept(name, path, state.st_mtime))
    return sorted(found, key=lambda one: one.modified, reverse=True)


def _read(folder: Path, kind: str, name: str) -> tuple[Path, dict[str, Any]]:
    """A kept result by a name that is no path: its file and what it holds."""
    must = "a name is made of letters, digits, '.', '-' and '_'"
    require(_NAME.fullmatch(name) is not None, must, f"got {name!r:.80}")
    path = folder / f"{kind}-{name}.json"
    if not os.path.lexists(path):
        raise unknown_name(kind, name, [one.name for one in _kept(folder, kind, [])] or ["(none yet)"])
    with _readable(path):
        return path, parsed_json(own_file_text(path), "a kept result must be JSON")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """A file that is no result is refused in a sentence, whatever is wrong with it."""
    try:
        yield
    except DataFileError:
        raise
    except Exception as error:
        must, remedy = "a kept result must be readable", "Delete it, and make it again"
        raise DataFileError(sentence(must, f"{path.name} is not ({type(error).__name__})", remedy)) from error
