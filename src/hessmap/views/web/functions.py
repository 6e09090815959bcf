"""The Function and certificate screen: what ``hessmap function`` and ``hessmap certify`` found, kept as JSON files."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from hessmap.errors import DataFileError, require, sentence, unknown_name
from hessmap.results import BottleneckView, Record
from hessmap.views.interactive.functions import bottleneck_figures
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
        found = _read(explorer.folder, "function", name)
        view = BottleneckView.from_dict(found["bottleneck_view"])
        lines = ["import json", "", "from hessmap.results import BottleneckView", ""]
        lines += [f'found = json.load(open("{(explorer.folder / f"function-{name}.json").name}"))']
        lines += ['BottleneckView.from_dict(found["bottleneck_view"]).plot().savefig("layers.svg")']
        return {
            "name": name,
            "rank": _rows(found["function_rank"]),
            "cost": _rows(found["representation_cost"]),
            "bottlenecks": view.bottlenecks,
            "is_chain": view.is_chain,
            "limited": view.limited_by_samples,
            "figures": [figure.to_dict() for figure in bottleneck_figures(view, "\n".join(lines))],
        }

    @router.get("/certificates/{name}")
    def certificate(name: str) -> dict[str, Any]:
        return {"name": name, "certificate": _read(explorer.folder, "certificate", name)}

    return router


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


def _read(folder: Path, kind: str, name: str) -> dict[str, Any]:
    """A kept result by a name that is no path."""
    require(
        _NAME.fullmatch(name) is not None, "a name is made of letters, digits, '.', '-' and '_'", f"got {name!r:.80}"
    )
    known = {path.stem.partition("-")[2]: path for path in _files(folder, kind)}
    if name not in known:
        raise unknown_name(kind, name, known or ["(none yet)"])
    try:
        content: dict[str, Any] = json.loads(known[name].read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise DataFileError(sentence(f"a {kind} must be readable", f"{known[name].name} is not")) from error
    return content


def _rows(content: dict[str, Any]) -> list[tuple[str, str]]:
    return Record.from_dict(content).rows()
