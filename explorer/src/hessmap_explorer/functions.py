"""The Function screen: what ``hessmap function``, ``plane`` and ``certify`` found, kept as JSON files."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import APIRouter

from hessmap.errors import DataFileError, InvalidInput, require, sentence, unknown_name
from hessmap.records import BottleneckView, FunctionRank, RepresentationCost, atomic_write
from hessmap.records.strict_json import parsed_json
from hessmap.views.plots.applications import error_marks, gauge_end, relative_values
from hessmap.views.plots.figure_data import Axis, FigureData, Floats, Line, Trace, series
from hessmap.views.tables import function as function_tables
from hessmap.views.tables.applications import certificate_numbers, certificate_promise, certificate_remarks
from hessmap_explorer.answers import Answer, shown_entry
from hessmap_explorer.maps import table
from hessmap_explorer.planes import described_plane
from hessmap_explorer.python_lines import result_lines
from hessmap_explorer.reading import own_file_text
from hessmap_explorer.settings import Explorer

if TYPE_CHECKING:
    from hessmap.certificates import Certificate


_COUNT = 10  # singular values of a layer that are drawn


def bottleneck_figures(view: BottleneckView, python: str = "") -> list[FigureData]:
    """Representations, ranks, the impact of the nonlinearity, and weights, against depth."""
    names = tuple(layer.name for layer in view.layers)
    depth = Axis("layer", names=names)
    places = list(range(len(names)))
    relative = [relative_values(layer.centred_singular_values) for layer in view.layers]
    impacts = [layer.nonlinearity for layer in view.layers]
    ranks = (
        Trace("centred rank", "both", places, [layer.centred_rank for layer in view.layers], colour="loss"),
        Trace(
            "effective rank", "both", places, [layer.effective_rank for layer in view.layers], colour="outer_product"
        ),
        Trace("stable rank", "both", places, [layer.stable_rank for layer in view.layers], colour="functional"),
        Trace("width", "dashed", places, [layer.width for layer in view.layers], colour="faint"),
    )
    tolerance = (Line(view.relative_tolerance, axis="y", label=f"tolerance {view.relative_tolerance:g}"),)
    values = Axis("over the largest", "log", limits=(1e-4, 1.5))
    impact = (
        Trace("relative change by the activation", "both", places, impacts, colour="outer_product", in_legend=False),
    )
    weights = _curves([layer.weight_singular_values for layer in view.layers])
    return [
        FigureData("Ranks of the representations", depth, Axis("rank", "log"), ranks, python=python),
        FigureData(
            "Singular values of the representations", depth, values, _curves(relative), tolerance, python=python
        ),
        FigureData("Relative change by the activation", depth, Axis("share of the norm"), impact, python=python),
        FigureData("Singular values of the weights", depth, Axis("singular value"), weights, python=python),
    ]


def _curves(values: list[Floats]) -> tuple[Trace, ...]:
    """The k-th value of every layer, one curve for each k, darkest first."""
    table = np.full((len(values), _COUNT), np.nan)
    for place, row in enumerate(values):
        table[place, : min(_COUNT, len(row))] = row[:_COUNT]
    return tuple(
        Trace(
            f"value {rank + 1}",
            "both",
            list(range(len(values))),
            table[:, rank],
            colour="outer_product",
            opacity=1.0 - 0.8 * rank / _COUNT,
            in_legend=False,
        )
        for rank in range(_COUNT)
    )


def gauge_data(certificate: Certificate, python: str = "") -> FigureData:
    """The bound as a bar, what was measured as points, the held-out bound as a line."""
    row = " "
    bound = Trace(f"bound {certificate.bound:.4f}", "bars", [certificate.bound], [row], colour="pale")
    points = tuple(
        Trace(f"{label} {value:.4f}", "points", [value], [row], colour=series(place))
        for place, (label, value) in enumerate(error_marks(certificate))
    )
    held_out = certificate.held_out_bound
    lines = () if held_out is None else (Line(held_out, label=f"held-out bound {held_out:.4f}"),)
    axis = Axis(
        "clipped squared error" if certificate.loss == "squared" else "error", limits=(0, gauge_end(certificate))
    )
    title = f"Certified with confidence {certificate.confidence:.1%}, KL {certificate.kl:,.1f}"
    return FigureData(title, axis, Axis(names=(row,), is_reversed=True), (bound, *points), lines, python)


KINDS = ("function", "plane", "certificate")
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

    @router.get("/planes/{name}")
    def plane(name: str) -> Answer:
        with shown_entry(f"the plane {name!r}"):
            path, content = _read(explorer.folder, "plane", name)
            with _readable(path):
                return Answer(described_plane(name, path, content))

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
        "promise": certificate_promise(found),
        "numbers": certificate_numbers(found),
        "remarks": certificate_remarks(found),
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
    with atomic_write(folder / f"{kind}-{name}.json") as file:
        file.write(json.dumps(content).encode())


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
    must = "a name consists of letters, digits, '.', '-' and '_'"
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
