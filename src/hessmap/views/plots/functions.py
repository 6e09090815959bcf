"""The function of a network: its representations layer by layer, and the plane as a classifier divides it."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hessmap.records import BottleneckView, ClassRegions
from hessmap.views.plots.style import BAR_COLOURS, FAINT, INK, PAPER, dress, literal, new_figure

Floats = NDArray[np.float64]
# Okabe and Ito, pale for regions and full for samples.
_CLASS_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8a8a8a")


def representations_figure(view: BottleneckView, count: int = 10) -> Figure:
    """Draw three panels over depth: singular values of representations, impact of the nonlinearity, weights.

    Args:
        view: The layers of the network.
        count: Number of centred singular values of a representation, each over the largest of its layer. Defaults to
            10.

    Returns:
        Figure: A matplotlib figure.
    """
    figure = new_figure(width=10.5, height=3.4)
    values, impact, weights = figure.subplots(1, 3)
    depths = range(1, len(view.layers) + 1)
    _draw_curves(values, [relative_values(layer.centred_singular_values) for layer in view.layers], count)
    values.set_yscale("log")
    values.set_ylim(1e-4, 1.5)
    values.axhline(view.relative_tolerance, color=FAINT, linestyle="--", linewidth=1.0)
    dress(values, f"representations{_narrowest(view.bottlenecks)}")
    impacts = [np.nan if layer.nonlinearity is None else layer.nonlinearity for layer in view.layers]
    impact.plot(depths, impacts, "o-", color=BAR_COLOURS[1], linewidth=1.4, markersize=4)
    impact.set_ylim(0, 1.1 * max(np.nanmax([*impacts, 0.0]), 0.05))
    dress(impact, r"$\|\tilde{Z} - \sigma(\tilde{Z})\|\;/\;\|\tilde{Z}\|$")
    _draw_curves(weights, [layer.weight_singular_values for layer in view.layers], count)
    dress(weights, "singular values of the weights")
    for axes in (values, impact, weights):
        axes.set_xlabel("layer", fontsize=9, color=INK)
        every = max(1, len(view.layers) // 12)
        axes.set_xticks(list(depths)[::every], [literal(layer.name) for layer in view.layers][::every])
    return figure


def _draw_curves(axes: Axes, values: list[Floats], count: int) -> None:
    """The k-th value of every layer, one curve per k, darkest first."""
    table = np.full((len(values), count), np.nan)
    for place, row in enumerate(values):
        table[place, : min(count, len(row))] = row[:count]
    for place in range(count):
        shade = 1.0 - 0.8 * place / count
        (line,) = axes.plot(range(1, len(values) + 1), table[:, place], "o-", color=BAR_COLOURS[1], linewidth=1.1)
        line.set(alpha=shade, markersize=3)


def _narrowest(names: tuple[str, ...]) -> str:
    if not names:
        return ""
    few = ", ".join(names) if len(names) <= 4 else f"{names[0]} .. {names[-1]} ({len(names)})"
    return f"; narrowest: {'layer' if len(names) == 1 else 'layers'} {literal(few)}"


def relative_values(values: Floats) -> Floats:
    """Over the largest, which is the first; zeros stay as they are."""
    return values / values[0] if values.size and values[0] > 0 else values


def class_regions_figure(
    regions: ClassRegions, points: Floats | None = None, labels: NDArray[np.int64] | None = None
) -> Figure:
    """Draw the regions of the classes in pale colours, boundaries as lines, points of three classes as rings.

    Args:
        regions: The regions.
        points: Samples to draw as dots, two coordinates each. Default: none.
        labels: Their classes. Default: none.

    Returns:
        Figure: A matplotlib figure.
    """
    left, right, bottom, top = regions.box
    height = float(np.clip(4.6 * (top - bottom) / (right - left), 2.4, 7.0))
    figure = new_figure(width=5.2, height=height + 0.5)
    axes = figure.subplots()
    count = int(regions.labels.max()) + 1
    colours = [_class_colour(label) for label in range(count)]
    axes.imshow(
        regions.labels, origin="lower", extent=(left, right, bottom, top), cmap=ListedColormap(colours), alpha=0.25,
        vmin=-0.5, vmax=count - 0.5, interpolation="nearest", aspect="equal",
    )  # fmt: skip
    axes.add_collection(LineCollection(list(regions.boundaries), colors=INK, linewidths=1.0))
    if points is not None:
        classes = np.zeros(len(points), dtype=np.int64) if labels is None else labels
        axes.scatter(points[:, 0], points[:, 1], s=7, c=[_class_colour(label) for label in classes], zorder=3)
    across, up = regions.tripoints.T
    axes.scatter(across, up, s=70, facecolors="none", edgecolors=INK, linewidths=1.8, zorder=4)
    grids = " and ".join(str(size) for size in regions.grid_sizes[-2:])
    doubt = f"grids of {grids} agree" if regions.agrees else f"grids disagree: {', '.join(map(str, regions.counts))}"
    word = "tripoint" if regions.num_tripoints == 1 else "tripoints"
    dress(axes, f"{regions.num_tripoints} {word} ({doubt})")
    axes.grid(visible=False)
    axes.set_facecolor(PAPER)
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    return figure


def _class_colour(label: int) -> str:
    return _CLASS_COLOURS[label % len(_CLASS_COLOURS)]
