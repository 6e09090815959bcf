"""A network layer by layer: singular values of representations and weights, and what the nonlinearity does."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hessmap.results import BottleneckView
from hessmap.views.plots.style import BAR_COLOURS, FAINT, INK, dress, new_figure

Floats = NDArray[np.float64]


def representations_figure(view: BottleneckView, count: int = 10) -> Figure:
    """Three panels against depth: the first ``count`` centred singular values of Z, each over the largest of its layer;
    the impact of the nonlinearity; the singular values of the weights."""
    figure = new_figure(width=10.5, height=3.4)
    values, impact, weights = figure.subplots(1, 3)
    depths = range(1, len(view.layers) + 1)
    _curves(values, [_relative(layer.centred_singular_values) for layer in view.layers], count)
    values.set_yscale("log")
    values.set_ylim(1e-4, 1.5)
    values.axhline(view.relative_tolerance, color=FAINT, linestyle="--", linewidth=1.0)
    names = "layer" if len(view.bottlenecks) == 1 else "layers"
    dress(values, f"representations; narrowest: {names} {_few(view.bottlenecks)}")
    impacts = [np.nan if layer.nonlinearity is None else layer.nonlinearity for layer in view.layers]
    impact.plot(depths, impacts, "o-", color=BAR_COLOURS[1], linewidth=1.4, markersize=4)
    impact.set_ylim(0, 1.1 * max(np.nanmax([*impacts, 0.0]), 0.05))
    dress(impact, r"$\|\tilde{Z} - \sigma(\tilde{Z})\|\;/\;\|\tilde{Z}\|$")
    _curves(weights, [layer.weight_singular_values for layer in view.layers], count)
    dress(weights, "singular values of the weights")
    for axes in (values, impact, weights):
        axes.set_xlabel("layer", fontsize=9, color=INK)
        every = max(1, len(view.layers) // 12)
        axes.set_xticks(list(depths)[::every], [layer.name for layer in view.layers][::every])
    return figure


def _curves(axes: Axes, values: list[Floats], count: int) -> None:
    """The k-th value of every layer, one curve per k, darkest first."""
    table = np.full((len(values), count), np.nan)
    for place, row in enumerate(values):
        table[place, : min(count, len(row))] = row[:count]
    for place in range(count):
        shade = 1.0 - 0.8 * place / count
        (line,) = axes.plot(range(1, len(values) + 1), table[:, place], "o-", color=BAR_COLOURS[1], linewidth=1.1)
        line.set(alpha=shade, markersize=3)


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{names[0]} .. {names[-1]} ({len(names)})"


def _relative(values: Floats) -> Floats:
    return values / values[0] if values[0] > 0 else values
