"""The sharpest directions of a network: eigenvectors as pictures of a weight, its factors, overlaps of two spaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hessmap_explorer.figures.figure import Axis, FigureData, Floats, Trace, evenly

_MOST_LINES = 128  # rows and columns of a weight that are drawn


def eigenvector_figures(found: Mapping[str, Any], python: Callable[[int], str]) -> list[FigureData]:
    """What ``hessmap map directions --layer`` printed: each eigenvector in the shape of the layer's weight."""
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
