"""What each kind of figure but lines puts on its axes: colours, densities, clouds, parts of the plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from hessmap.views.plots.style import FAINT, INK, KIND_COLOURS, PAPER, kind_colour, literal, marker, series_colour
from hessmap_research.runner.row import Row
from hessmap_research.runner.view import Cloud, Heatmap, Histogram, Plane
from hessmap_research.views.panels import flat_values, kind_label, kinds_of, point_kinds
from hessmap_research.views.table import words

Floats = NDArray[np.float64]
_MANY = 12  # more rows of a heatmap than this have small labels
_CROWD = 300  # more points of a cloud than this are drawn in turns
_NUM_TURNS = 25


def draw_heatmap(axes: Axes, figure: Heatmap, rows: Sequence[Row]) -> None:
    """A matrix, or a number over two fields, as colours."""
    if figure.row_labels:
        _draw_images(axes, figure, rows)
        return
    extent = None
    if figure.x:
        matrix, xs, ys = matrix_over_fields(figure, rows)
        axes.set_xticks(range(len(xs)), [literal(x) for x in xs])
        axes.set_yticks(range(len(ys)), [literal(y) for y in ys], fontsize=8.5 if len(ys) <= _MANY else 6.5)
    else:
        matrix = np.mean([row.array(figure.value) for row in rows], axis=0)
        extent = (0.5, matrix.shape[1] + 0.5, matrix.shape[0] + 0.5, 0.5)  # rows and columns count from 1
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=2))
    low, high = figure.limits or value_limits(matrix, is_symmetric=figure.colours == "diverging")
    colours = "viridis" if figure.colours == "sequential" else "RdBu_r"
    style: dict[str, Any] = {"cmap": colours, "aspect": "auto", "interpolation": "nearest", "extent": extent}
    image = axes.imshow(matrix, vmin=low, vmax=high, **style)
    axes.get_figure(root=True).colorbar(image, ax=axes)  # type: ignore[union-attr]
    axes.set_xlabel(literal(words(figure.x)))
    axes.set_ylabel(literal(words(figure.y)))


def _draw_images(axes: Axes, figure: Heatmap, rows: Sequence[Row]) -> None:
    """Rows of images as they are, of the first row: a mean of images is none."""
    matrix = rows[0].array(figure.value)
    low, high = figure.limits or value_limits(matrix, is_symmetric=False)
    axes.imshow(matrix, vmin=low, vmax=high, cmap="gray_r", aspect="equal", interpolation="nearest")
    height = len(matrix) / len(figure.row_labels)
    places = [height * (place + 0.5) - 0.5 for place in range(len(figure.row_labels))]
    axes.set_yticks(places, [literal(label) for label in figure.row_labels])
    for place in range(1, len(figure.row_labels)):
        axes.axhline(height * place - 0.5, color=PAPER, linewidth=4.0)
    axes.set_xticks([])


def matrix_over_fields(figure: Heatmap, rows: Sequence[Row]) -> tuple[Floats, list[Any], list[Any]]:
    """The mean of the value at each pair of the two fields, nan where there is none; and the values of the fields."""
    xs, ys = (sorted({row[name] for row in rows}) for name in (figure.x, figure.y))
    sums, counts = np.zeros((len(ys), len(xs))), np.zeros((len(ys), len(xs)))
    for row in rows:
        place = ys.index(row[figure.y]), xs.index(row[figure.x])
        sums[place] += row.number(figure.value)
        counts[place] += 1
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0), xs, ys


def value_limits(matrix: Floats, is_symmetric: bool) -> tuple[float, float]:
    """From the smallest to the largest value, or as far below zero as above it."""
    low, high = float(np.nanmin(matrix)), float(np.nanmax(matrix))
    return (-max(-low, high), max(-low, high)) if is_symmetric else (low, high)


def histogram_density(figure: Histogram, rows: Sequence[Row]) -> tuple[Floats, Floats]:
    """The density of the measured values, and the edges of its bins.

    It is of all values, also of those outside the limits, so that it can be compared with the prediction.
    """
    values = np.concatenate([row.array(figure.values).ravel() for row in rows])
    low, high = figure.x_limits or (None, None)
    ends = (values.min() if low is None else low, values.max() if high is None else high)
    counts, edges = np.histogram(values, bins=figure.bins, range=ends)
    return counts / (values.size * np.diff(edges)), edges


def draw_histogram(axes: Axes, figure: Histogram, rows: Sequence[Row]) -> None:
    """The density of measured values with the predicted density over it."""
    density, edges = histogram_density(figure, rows)
    axes.stairs(density, edges, fill=True, color=series_colour(0), alpha=0.55, label="measured")
    if figure.density:
        at, predicted = rows[0].array(figure.density_at), rows[0].array(figure.density)
        axes.plot(at, predicted, color=series_colour(1), linewidth=1.5, label="predicted")
    axes.set_xlabel(literal(words(figure.values)))
    axes.set_ylabel("density")


def draw_cloud(axes: Axes, figure: Cloud, rows: Sequence[Row], colours: Mapping[str, str]) -> None:
    """Points of two quantities, coloured by a third; of a crowd some of each kind in turn, so that none covers all."""
    x, y = (np.concatenate([flat_values(row, name) for row in rows]) for name in (figure.x, figure.y))
    kinds = np.concatenate([point_kinds(row, figure) for row in rows])
    found = kinds_of(figure, rows)
    for turn in range(_NUM_TURNS if x.size > _CROWD else 1):
        for place, kind in enumerate(found):
            chosen = np.flatnonzero(kinds == kind)
            chosen = chosen[turn::_NUM_TURNS] if x.size > _CROWD else chosen
            label = kind_label(figure, kind)
            shape = "o" if label in colours else marker(place // len(KIND_COLOURS))
            colour = colours.get(label, kind_colour(place))
            named = literal(label) if label and turn == 0 else None
            axes.plot(x[chosen], y[chosen], shape, color=colour, markersize=3.5, label=named)
    if figure.diagonal:
        low = figure.x_limits[0] if figure.x_limits else None
        ends = [float(min(x.min(), y.min())) if low is None else low, float(max(x.max(), y.max()))]
        axes.plot(ends, ends, "-", color=FAINT, linewidth=1.0, zorder=1, label=literal(figure.diagonal))
    axes.set_xlabel(literal(words(figure.x)))
    axes.set_ylabel(literal(words(figure.y)))


def draw_plane(axes: Axes, figure: Plane, rows: Sequence[Row]) -> None:
    """A part of the plane, of the first row: two pictures of a plane cannot be averaged."""
    row = rows[0]
    left, right, bottom, top = row.array(figure.box)
    if figure.labels:
        labels = row.array(figure.labels)
        count = int(labels.max()) + 1
        shades = ListedColormap([series_colour(place) for place in range(count)])
        axes.imshow(
            labels, origin="lower", extent=(left, right, bottom, top), cmap=shades, alpha=0.3,
            vmin=-0.5, vmax=count - 0.5, interpolation="nearest",
        )  # fmt: skip
    if figure.points:
        points = row.array(figure.points)
        kinds = row.array(figure.kinds).astype(int) if figure.kinds else np.zeros(len(points), dtype=int)
        axes.scatter(points[:, 0], points[:, 1], s=4, c=[series_colour(kind) for kind in kinds])
        _name_points(axes, figure.point_label, series_colour(0))
    if figure.arrows:
        arrows = row.array(figure.arrows)
        axes.add_collection(LineCollection(list(arrows.reshape(-1, 2, 2)), colors=FAINT, linewidths=0.7))
        axes.scatter(arrows[:, 0], arrows[:, 1], s=7, c=series_colour(2), zorder=3)
        axes.scatter(arrows[:, 2], arrows[:, 3], s=7, c=series_colour(1), zorder=3)
        for label, colour in zip(figure.arrow_labels, (2, 1), strict=True):
            _name_points(axes, label, series_colour(colour))
    if figure.rings:
        rings = row.array(figure.rings).reshape(-1, 2)
        axes.scatter(rings[:, 0], rings[:, 1], s=60, facecolors="none", edgecolors=INK, linewidths=1.6, zorder=4)
        _name_points(axes, figure.ring_label, "none", edge=INK)
    axes.set_aspect("equal")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)


def _name_points(axes: Axes, label: str, colour: str, edge: str = "none") -> None:
    """A line of the legend for points that a plane shows."""
    if label:
        style: dict[str, Any] = {"markerfacecolor": colour, "markeredgecolor": edge if edge != "none" else colour}
        axes.plot([], [], "o", markersize=5, label=literal(label), **style)
