"""Figures as data: axes, traces and reference lines. ``drawing`` draws them with matplotlib, the explorer with plotly.

Colours are names: "loss", "outer_product" and "functional" for the three Hessians, "series0", "series1", .. for the
rest, "ink", "faint" and "pale". Titles, labels and notes may contain mathematics between dollars, so that names from
outside go through ``literal``; the names along an axis are shown as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hessmap.views.plots.style import SERIES_COLOURS, without_mathematics

Floats = NDArray[np.float64]
Scale = Literal["linear", "log", "symlog"]
Kind = Literal["line", "dashed", "points", "both", "bars", "steps", "heatmap", "segments", "rug"]
Values = Sequence[Any] | NDArray[Any]
MOST_POINTS = 2000  # of a curve that a browser is sent; more cannot be seen on a screen


@dataclass(frozen=True)
class Axis:
    """``limits`` are None where the data go; ``names`` stand at the places 0, 1, .. of an axis of categories, in print
    with ``details`` below them and ``remarks`` on the other side. A symlog axis is linear up to ``edge``."""

    label: str = ""
    scale: Scale = "linear"
    limits: tuple[float | None, float | None] | None = None
    names: tuple[str, ...] = ()
    is_reversed: bool = False
    is_share: bool = False
    edge: float = 0.0
    details: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trace:
    """What is drawn in one colour; ``low`` and ``high`` are a band or whiskers around ``y``.

    ``keys`` name what stands behind each point, for a click on it (one key alone: behind all of them); ``z`` is the
    matrix of a heatmap; ``palette`` colours it. Bars are horizontal: ``y`` names them, the whiskers are around ``x``.
    A rug marks places below the figure.
    """

    label: str
    kind: Kind
    x: Values = ()
    y: Values = ()
    low: Values = ()
    high: Values = ()
    colour: str = "series0"
    keys: Sequence[str] = ()
    z: Values = ()
    palette: Literal["", "sequential", "diverging", "grey", "classes"] = ""
    opacity: float = 1.0
    in_legend: bool = True
    marker: Literal["", "up", "down"] = ""


@dataclass(frozen=True)
class Line:
    """A reference line across the figure, or the shaded part of the axis up to ``end``."""

    at: float
    axis: Literal["x", "y"] = "x"
    label: str = ""
    end: float | None = None
    colour: str = "faint"


@dataclass(frozen=True)
class FigureData:
    """One panel. ``note`` tells what was left out, as points that were thinned; ``python`` are lines that draw it."""

    title: str
    x: Axis
    y: Axis
    traces: tuple[Trace, ...]
    lines: tuple[Line, ...] = ()
    python: str = ""
    note: str = ""
    is_square: bool = False

    def to_dict(self) -> dict[str, Any]:
        """In the types of strict JSON: what is no finite number is null, which breaks a line; mathematics is text."""
        content: dict[str, Any] = _plain(asdict(self))
        for part in (content, content["x"], content["y"], *content["traces"], *content["lines"]):
            for name in part.keys() & {"title", "label", "note"}:
                part[name] = without_mathematics(part[name]).replace(r"\$", "$")
        return content


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def series(place: int) -> str:
    """The name of a colour of the series."""
    return f"series{place % len(SERIES_COLOURS)}"


def thinned_places(values: Floats, most: int | None = MOST_POINTS, kept: Iterable[int] = ()) -> NDArray[np.int64]:
    """Places of a descending curve that show its shape: even ones, denser at its ends, and both sides of every jump.

    ``kept`` are places that must be among them, with their neighbours.

    >>> thinned_places(np.array([3.0, 2.0, 1.0])).tolist()
    [0, 1, 2]
    """
    size = len(values)
    if most is None or size <= most:
        return np.arange(size)
    even = np.linspace(0, size - 1, most // 2)
    ends = np.geomspace(1, size, most // 8) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        jumps = np.nan_to_num(np.abs(np.diff(np.log(np.abs(values)))), posinf=0.0)
    largest = np.argsort(-jumps)[: most // 16]
    asked = [place + shift for place in kept for shift in (-1, 0, 1)]
    places = np.concatenate([even, ends, size - 1 - ends, largest, largest + 1, np.array(asked, dtype=float)])
    return np.unique(np.clip(np.rint(places), 0, size - 1).astype(np.int64))


def evenly(size: int, most: int | None = MOST_POINTS) -> NDArray[np.int64]:
    """At most a given number of indices out of a size (None: all of them), with the first and the last.

    >>> evenly(10, 4).tolist()
    [0, 3, 6, 9]
    """
    if most is None or size <= most:
        return np.arange(size)
    return np.unique(np.rint(np.linspace(0, size - 1, most)).astype(np.int64))


def thinning_note(shown: int, size: int) -> str:
    """What is left out, in a sentence; empty where nothing is."""
    return f"{shown:,} of {size:,} points are drawn; the CSV holds those, the record holds all." if shown < size else ""
