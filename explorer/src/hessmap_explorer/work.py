"""Starting, watching and stopping jobs: each request becomes a ``hessmap`` command, value by value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from hessmap.cli.store import options_of_map
from hessmap.errors import InvalidInput, MissingExtra, require, sentence
from hessmap.records import StoredMap
from hessmap.views.plots.figure_data import Axis, FigureData, Floats, Trace, evenly
from hessmap_explorer.answers import Answer
from hessmap_explorer.functions import free_result_name, kept_result
from hessmap_explorer.jobs import Job, Jobs, OnDone
from hessmap_explorer.predict import prediction_command
from hessmap_explorer.python_lines import directions_lines, eigenvector_lines
from hessmap_explorer.reading import stored_map
from hessmap_explorer.settings import NO_RESEARCH, Explorer

_MOST_LINES = 128  # rows and columns of a weight that are drawn


def eigenvector_figures(found: Mapping[str, Any], python: Callable[[int], str]) -> list[FigureData]:
    """What ``hessmap maps directions --layer`` printed: each eigenvector in the shape of the layer's weight."""
    return [
        _weight_figure(np.array(vector), place, python(place)) for place, vector in enumerate(found.get("vectors", []))
    ]


def _weight_figure(vector: Floats, place: int, python: str) -> FigureData:
    rows, columns = (evenly(size, _MOST_LINES) for size in vector.shape)
    shown = vector[np.ix_(rows, columns)]
    most = float(np.abs(shown).max(initial=0.0)) or 1.0
    trace = Trace("", "heatmap", columns + 1, rows + 1, [-most], [most], z=shown.round(6), palette="diverging")
    note = f"{shown.size:,} of {vector.size:,} entries are drawn." if shown.size < vector.size else ""
    title = f"Eigenvector {place + 1}, as its weight"
    return FigureData(title, Axis("input"), Axis("output", is_reversed=True), (trace,), python=python, note=note)


def factors_figure(factors: Mapping[str, list[float]], python: str = "") -> FigureData:
    """The largest eigenvalues of both Kronecker factors of a layer."""
    labels = {"input": ("inputs, E[x xᵀ]", "outer_product"), "output": ("outputs, E[M]", "functional")}
    traces = tuple(
        Trace(label, "both", _ranks(factors[name]), [value if value > 0 else None for value in factors[name]],
              colour=colour)
        for name, (label, colour) in labels.items()
    )  # fmt: skip
    return FigureData("Eigenvalues of the factors", Axis("index"), Axis("eigenvalue", "log"), traces, python=python)


def overlap_figure(overlap: Mapping[str, list[float]], python: str = "") -> FigureData:
    """How far the spaces of the first 1, 2, .. directions of two networks are the same."""
    values, chance = overlap["values"], overlap["chance"]
    traces = (
        Trace("overlap", "both", _ranks(values), values, colour="loss"),
        Trace("of two random spaces", "dashed", _ranks(chance), chance, colour="faint"),
    )
    axes = Axis("dimension of the two spaces"), Axis("overlap", limits=(-0.03, 1.03))
    note = "1: the two networks are sharpest in the same directions."
    return FigureData("Overlap of the sharpest eigenspaces", *axes, traces, python=python, note=note)


def _ranks(values: list[float]) -> list[int]:
    return list(range(1, len(values) + 1))


_NAME = r"^[\w.-]{1,60}$"
_WIDTHS = r"^\d{1,6}(-\d{1,6}){1,30}$"


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NewMap(_Body):
    """A map of the model that the explorer was started with, or of a small network that is trained first."""

    name: str = Field(pattern=_NAME)
    loss: Literal["cross_entropy", "squared", "log_cosh"] = "cross_entropy"
    widths: str | None = Field(default=None, pattern=_WIDTHS)
    activation: Literal["relu", "tanh", "identity", "gelu", "elu", "erf", "leaky_relu"] = "relu"
    epochs: int = Field(default=20, ge=0, le=1000)
    samples: int | None = Field(default=None, ge=2, le=100_000)
    seed: int = Field(default=0, ge=0, le=2**31)
    seconds: float | int = Field(default=60, ge=1, le=86_400)


class StudyRun(_Body):
    """The cases of a study that are not stored yet."""

    study: str = Field(max_length=100)
    data: str | None = Field(default=None, pattern=_NAME)
    retry_failed: bool = False


class Check(_Body):
    """The query of the Predict screen, whose network is to be checked in exact arithmetic."""

    query: dict[str, str] = Field(max_length=40)


class FunctionRun(_Body):
    tolerance: float = Field(default=0.1, gt=0, lt=1)
    samples: int = Field(default=300, ge=2, le=100_000)


class PlaneRun(_Body):
    """The loss along directions through the explorer's model, or through a small network that is trained first."""

    directions: Literal["sharpest", "random"] = "sharpest"
    dimensions: Literal[1, 2] = 2
    points: int = Field(default=15, ge=2, le=101)
    samples: int = Field(default=300, ge=2, le=100_000)


class CertificateRun(_Body):
    iterations: int = Field(default=1500, ge=10, le=100_000)


class Directions(_Body):
    """The sharpest directions of a stored map: of one layer, or compared with those of another map."""

    name: str = Field(pattern=_NAME)
    layer: str | None = Field(default=None, max_length=200)
    against: str | None = Field(default=None, pattern=_NAME)
    count: int = Field(default=9, ge=1, le=50)


def work_router(explorer: Explorer, jobs: Jobs) -> APIRouter:
    """The routes of an explorer about jobs."""
    router = APIRouter(prefix="/api/jobs")

    @router.get("")
    def listed() -> Answer:
        return Answer({"jobs": [job.described() | {"result": None} for job in jobs.all()]})

    @router.get("/{number}")
    def one(number: int) -> Answer:
        return Answer(jobs[number].described())

    @router.post("/{number}/stop")
    def stop(number: int) -> Answer:
        return Answer(jobs.stop(number).described())

    @router.post("/map")
    def new_map(body: NewMap) -> Answer:
        return _started(jobs.start("map", f"Map {body.name}", _map_words(explorer, body), f"/maps/{body.name}"))

    @router.post("/study")
    def study(body: StudyRun) -> Answer:
        name = _known_study(body.study)
        words = ["study", "run", name, f"--store={explorer.store}", "--json"]
        words += [f"--data={body.data}"] if body.data else []
        words += ["--retry-failed"] if body.retry_failed else []
        return _started(jobs.start("study", f"Study {name}", words, f"/studies/{name}"))

    @router.post("/check")
    def check(body: Check) -> Answer:
        words = prediction_command(body.query)
        return _started(jobs.start("check", f"Exact ranks of {words[1]}", [*words, "--check", "--json"]))

    @router.post("/directions")
    def directions(body: Directions) -> Answer:
        names = [body.name] if body.against is None else [body.name, body.against]
        trusted = [one for name in names for one in _own_references(explorer, stored_map(explorer.store, name))]
        words = ["maps", "directions", f"--count={body.count}", f"--store={explorer.store}", "--json"]
        words += [f"--layer={body.layer}"] if body.layer is not None else []
        words += [f"--against={body.against}"] if body.against is not None else []
        words += [f"--trust={reference}" for reference in dict.fromkeys(trusted)]
        words += ["--", body.name]
        title = f"Sharpest directions of {body.name}"
        return _started(jobs.start("directions", title, words, on_done=lambda found: (_directions(found, words), "")))

    @router.post("/function")
    def function(body: FunctionRun) -> Answer:
        name = free_result_name(explorer.folder, "function")
        model = [explorer.model, f"--data={explorer.data}"] if explorer.model else []
        words = ["function", *model, f"--tolerance={body.tolerance}", f"--samples={body.samples}", "--json"]
        title = f"Function of {explorer.model or 'the example'}"
        return _started(jobs.start("function", title, words, on_done=_keep(explorer, "function", name)))

    @router.post("/plane")
    def plane(body: PlaneRun) -> Answer:
        name = free_result_name(explorer.folder, "plane")
        words = ["plane", *([explorer.model] if explorer.model else []), f"--data={explorer.data}"]
        words += [f"--loss={explorer.loss}"] if explorer.loss else []
        words += [f"--samples={body.samples}"] if ":" not in explorer.data else []
        words += [f"--directions={body.directions}", f"--dimensions={body.dimensions}", f"--points={body.points}"]
        title = f"Loss plane of {explorer.model or 'the example'}"
        return _started(jobs.start("plane", title, [*words, "--json"], on_done=_keep(explorer, "plane", name)))

    @router.post("/certificate")
    def certificate(body: CertificateRun) -> Answer:
        name = free_result_name(explorer.folder, "certificate")
        model: list[str] = []
        if explorer.model:
            must = "a certificate needs the weights that training started from"
            require(explorer.initial is not None, must, "none were given", "Start hessmap serve with --initial")
            model = [explorer.model, f"--initial={explorer.initial}", f"--data={explorer.data}"]
        words = ["certify", *model, f"--iterations={body.iterations}", "--json"]
        title = f"Certificate of {explorer.model or 'the example'}"
        return _started(jobs.start("certificate", title, words, on_done=_keep(explorer, "certificate", name)))

    return router


def _started(job: Job) -> Answer:
    return Answer(job.described())


def _map_words(explorer: Explorer, body: NewMap) -> list[str]:
    """The words behind hessmap; a value is never a word of its own, so that none can pass for an option."""
    words = ["map"]
    if explorer.model:
        must = "a model of your own has its own widths and weights"
        require(body.widths is None, must, f"the explorer shows {explorer.model}", "Leave the widths out")
        words += [explorer.model]
    else:
        words += [f"--epochs={body.epochs}", f"--activation={body.activation}", f"--seed={body.seed}"]
        words += [f"--widths={body.widths}"] if body.widths else []
    words += [f"--data={explorer.data}", f"--loss={body.loss}", f"--name={body.name}", f"--seconds={body.seconds}"]
    words += [f"--samples={body.samples}"] if body.samples is not None and ":" not in explorer.data else []
    return [*words, f"--store={explorer.store}", "--no-files", "--json"]


def _own_references(explorer: Explorer, stored: StoredMap) -> tuple[str, ...]:
    """What making a map again imports. A store may come from someone else: only what the explorer was started with.

    A job names them to its command one by one, which refuses any other: what the store holds when a job that waited
    begins may not be what was read here.
    """
    references = options_of_map(stored).references
    for reference in references:
        if reference not in (explorer.model, explorer.data):
            must = "a network is rebuilt only if the explorer was started with its model and data"
            got, remedy = (
                f"{stored.name!r} is of {reference!r}",
                "Start hessmap serve with them, if you trust that code",
            )
            raise InvalidInput(sentence(must, got, remedy))
    return references


def _directions(found: Any, words: list[str]) -> dict[str, Any]:
    """What the command found, as figures."""
    vectors = eigenvector_figures(found, lambda place: eigenvector_lines(words, place))
    factors, overlap = found.get("factors"), found.get("overlap")
    return {
        "eigenvalues": found["eigenvalues"],
        "converged": found["converged"],
        "vectors": [figure.to_dict() for figure in vectors],
        "factors": factors and factors_figure(factors, directions_lines(words, "factors")).to_dict(),
        "factors_gap": found.get("factors_gap", ""),
        "overlap": overlap and overlap_figure(overlap, directions_lines(words, "overlap")).to_dict(),
    }


def _keep(explorer: Explorer, kind: str, name: str) -> OnDone:
    def keep(result: Any) -> tuple[Any, str]:
        if not isinstance(result, dict):
            raise InvalidInput(sentence(f"a {kind} must print JSON", "it printed something else"))
        kept_result(explorer.folder, kind, name, result)
        return {"name": name}, f"/function?{kind}={name}"

    return keep


def _known_study(name: str) -> str:
    if find_spec("hessmap_research") is None:
        raise MissingExtra(NO_RESEARCH)
    from hessmap_explorer.studies import known_study

    return known_study(name)
