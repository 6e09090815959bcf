"""A track in memory and the same track in the store: every change is made to both."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

from hessmap.errors import InvalidInput, require, sentence
from hessmap.maps.curvature_map.network import description
from hessmap.maps.track.point import TrackSettings
from hessmap.maps.track.subject import data_fingerprint
from hessmap.problem import Problem
from hessmap.records import (
    DEFAULT_STORE,
    CurvatureTrack,
    Store,
    TrackPoint,
    add_point,
    add_track,
    drop_points,
    drop_track,
    encode,
    free_name,
    load_track,
    require_free_track,
    set_times,
)

_MUST_AGREE = ("network", "loss", "part", "num_parameters", "num_samples", "data_hash", "settings")


def new_track(name: str, problem: Problem, settings: TrackSettings, share: float | None) -> CurvatureTrack:
    """A track of a problem, without points."""
    return CurvatureTrack(
        name=name,
        network=description(problem.model),
        loss=problem.loss.name,
        part=settings.part,
        num_parameters=problem.num_parameters,
        num_samples=problem.num_samples,
        data_hash=data_fingerprint(problem),
        share=share,
        seconds=0.0,
        spent=0.0,
        settings={**settings.as_dict(), **_of_problem(problem)},
        points=(),
        provenance=problem.provenance,
    )


def _of_problem(problem: Problem) -> dict[str, object]:
    dtype = str(problem.dtype).removeprefix("torch.")
    return {"l2": problem.l2, "parameters": problem.layout.names, "dtype": dtype}


class StoredTrack:
    """The points so far; every change is written before it is made here."""

    def __init__(self, made: CurvatureTrack, store: Path) -> None:
        self.track = made
        self.store = store

    @property
    def points(self) -> tuple[TrackPoint, ...]:
        return self.track.points

    def add(self, point: TrackPoint, seconds: float, spent: float) -> None:
        """Add a point, in the place of an earlier one of the same step."""
        with Store(self.store, create=True) as opened:
            add_point(opened, self.track.name, point, seconds, spent)
        others = [other for other in self.points if other.step != point.step]
        points = tuple(sorted([*others, point], key=lambda each: each.step))
        self.track = replace(self.track, points=points, seconds=seconds, spent=spent)

    def drop_from(self, step: int) -> None:
        """Forget the points from a step on."""
        with Store(self.store) as opened:
            drop_points(opened, self.track.name, step)
        self.track = replace(self.track, points=tuple(point for point in self.points if point.step < step))

    def set_times(self, seconds: float, spent: float) -> None:
        with Store(self.store) as opened:
            set_times(opened, self.track.name, seconds, spent)
        self.track = replace(self.track, seconds=seconds, spent=spent)


def stored_track(made: CurvatureTrack, store: Path, resume: bool, replaced: bool) -> StoredTrack:
    """The track under its name in the store: new, or gone on with where ``resume`` says so."""
    with Store(store, create=True) as opened:
        opened.require_sound()
        if replaced:
            drop_track(opened, made.name)
        elif resume and opened.execute("SELECT 1 FROM track WHERE name = ?", (made.name,)):
            found = load_track(opened, made.name)
            _require_same(found, made)
            return StoredTrack(replace(found, share=made.share, provenance=made.provenance), store)
        add_track(opened, made)
    return StoredTrack(made, store)


def store_path(store: str | os.PathLike[str] | None) -> Path:
    """The given file, else that of HESSMAP_STORE, else the one that all commands use."""
    return Path(store or os.environ.get("HESSMAP_STORE") or DEFAULT_STORE)


def track_name(name: str | None, store: Path, resume: bool, replaced: bool) -> str:
    """The given name, which must be free unless it is gone on with or replaced, or the time; asked before any work."""
    if name is not None:
        must = "a name of a track must be made of letters, digits, '.', '-' and '_'"
        require(re.fullmatch(r"[\w.-]+", name) is not None, must, f"got {name!r}")
    require(not (resume or replaced) or name is not None, "a track is gone on with or replaced by its name", "got none")
    require(not (resume and replaced), "resume and replace exclude each other", "both are set")
    with Store(store, create=True) as opened:
        if name is None:
            return free_name(opened, "track", time.strftime("%Y%m%d-%H%M%S"))
        if not (resume or replaced):
            require_free_track(opened, name)
    return name


def _require_same(found: CurvatureTrack, made: CurvatureTrack) -> None:
    """Refuse to go on with a track that was made of something else, and name the first thing that differs."""
    for field in _MUST_AGREE:
        before, now = getattr(found, field), getattr(made, field)
        if field == "settings":
            before, now = encode(before), encode(now)
        if before != now:
            must = f"a track goes on only with what it was begun with, and {made.name!r} is of another {field}"
            remedy = "Choose another name, or say replace=True to forget the stored one"
            raise InvalidInput(sentence(must, f"it was {before} and is {now}", remedy))
