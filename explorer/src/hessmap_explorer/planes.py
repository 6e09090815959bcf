"""Loss planes of the Function screen: what ``hessmap plane`` found, as figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hessmap.records import LossPlane
from hessmap.views.plots.figure_data import Axis, FigureData, Floats, Line, Trace
from hessmap.views.tables.applications import plane_findings
from hessmap_explorer.python_lines import result_lines


def plane_figures(plane: LossPlane, python: str = "") -> list[FigureData]:
    """The loss and its quadratic model: two curves over a line, or two maps over a plane with the same colours."""
    if plane.loss.ndim == 1:
        return [_line(plane, python)]
    shown = [("Loss", plane.loss)]
    shown += [] if plane.quadratic is None else [("Quadratic model", plane.quadratic)]
    finite = plane.loss[np.isfinite(plane.loss)]
    ends = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    return [_map(plane, title, values, ends, python) for title, values in shown]


def _line(plane: LossPlane, python: str) -> FigureData:
    (positions,) = plane.coordinates
    traces = [Trace("loss", "line", positions, _known(plane.loss), colour="loss")]
    if plane.quadratic is not None:
        traces.append(Trace("quadratic model", "dashed", positions, _known(plane.quadratic), colour="functional"))
    lines = () if plane.barrier is None else (Line(plane.barrier.position, label="barrier"),)
    return FigureData("Loss", Axis(plane.labels[0]), Axis("loss"), tuple(traces), lines, python)


def _map(plane: LossPlane, title: str, values: Floats, ends: tuple[float, float], python: str) -> FigureData:
    first, second = plane.coordinates
    rows = [_known(row) for row in values.T]
    low, high = ends
    trace = Trace("", "heatmap", first, second, [low], [high], z=rows, palette="sequential")
    return FigureData(title, Axis(plane.labels[0]), Axis(plane.labels[1]), (trace,), python=python)


def _known(values: Floats) -> list[float | None]:
    """Numbers for a browser, which has none that are not finite."""
    return [float(value) if np.isfinite(value) else None for value in values]


def described_plane(name: str, path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """A kept plane for the screen: its figures, and its numbers in sentences."""
    plane = LossPlane.from_dict(content)
    figures = plane_figures(plane, result_lines(path, "plane"))
    return {
        "name": name,
        "findings": plane_findings(plane),
        "figures": [figure.to_dict() for figure in figures],
    }
