"""A matrix, or a number over two fields, as colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from hessmap.studies import Heatmap, Row
from hessmap.views.study_words import words

Floats = NDArray[np.float64]


def draw_heatmap(axes: Axes, figure: Heatmap, rows: Sequence[Row]) -> None:
    extent = None
    if figure.x:
        matrix = _over_fields(axes, figure, rows)
    else:
        matrix = np.mean([row.array(figure.value) for row in rows], axis=0)
        extent = (0.5, matrix.shape[1] + 0.5, matrix.shape[0] + 0.5, 0.5)  # rows and columns count from 1
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=2))
    low, high = figure.limits or _limits(matrix, is_symmetric=figure.colours == "diverging")
    colours = "viridis" if figure.colours == "sequential" else "RdBu_r"
    style: dict[str, Any] = {"cmap": colours, "aspect": "auto", "interpolation": "nearest", "extent": extent}
    image = axes.imshow(matrix, vmin=low, vmax=high, **style)
    axes.get_figure(root=True).colorbar(image, ax=axes)  # type: ignore[union-attr]
    axes.set_xlabel(words(figure.x))
    axes.set_ylabel(words(figure.y))


def _over_fields(axes: Axes, figure: Heatmap, rows: Sequence[Row]) -> Floats:
    """The mean of the value at each pair of the two fields; nan where there is none."""
    xs, ys = (sorted({row[name] for row in rows}) for name in (figure.x, figure.y))
    sums, counts = np.zeros((len(ys), len(xs))), np.zeros((len(ys), len(xs)))
    for row in rows:
        place = ys.index(row[figure.y]), xs.index(row[figure.x])
        sums[place] += row.number(figure.value)
        counts[place] += 1
    axes.set_xticks(range(len(xs)), [str(x) for x in xs])
    axes.set_yticks(range(len(ys)), [str(y) for y in ys])
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def _limits(matrix: Floats, is_symmetric: bool) -> tuple[float, float]:
    low, high = float(np.nanmin(matrix)), float(np.nanmax(matrix))
    return (-max(-low, high), max(-low, high)) if is_symmetric else (low, high)
