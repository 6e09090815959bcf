"""Two maps of curvature, layer by layer: bars before and after."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hessmap.errors import require
from hessmap.results.map_comparison import Change, LayerChange, MapComparison
from hessmap.views.plots.pairs import draw_pairs
from hessmap.views.plots.style import INK, new_figure

# What is drawn of a layer, by the label of its axis.
QUANTITIES: dict[str, Callable[[LayerChange], Change]] = {
    "top eigenvalue of the layer's block of H_L": lambda layer: layer.top_eigenvalue,
    "trace of the layer's block of H_L": lambda layer: layer.trace,
    "share of the curvature (trace of H_o)": lambda layer: layer.curvature_share,
}


def comparison_figure(comparison: MapComparison) -> Figure:
    """A panel for each quantity; pale is the old map, dark the new one."""
    require(bool(comparison.layers), "the bars need layers that both maps have", "there is none")
    figure = new_figure(width=1.0 + 3.4 * len(QUANTITIES), height=_height(comparison))
    panels = figure.subplots(1, len(QUANTITIES), sharey=True, squeeze=False)[0]
    for panel, label in zip(panels, QUANTITIES, strict=True):
        _draw(panel, comparison, label)
        panel.set_xlabel(label, fontsize=9, color=INK)
    return figure


def quantity_figure(comparison: MapComparison, label: str) -> Figure:
    """One quantity alone, narrow enough for a phone; what it is, the caption says."""
    figure = new_figure(width=4.6, height=_height(comparison))
    _draw(figure.subplots(), comparison, label)
    return figure


def _height(comparison: MapComparison) -> float:
    return 1.0 + 0.6 * len(comparison.layers)


def _draw(axes: Axes, comparison: MapComparison, label: str) -> None:
    changes = [QUANTITIES[label](layer) for layer in comparison.layers]
    labels = [f"layer {layer.name}\n{layer.shape}" for layer in comparison.layers]
    before = f"before: {comparison.old.name}", [item.old for item in changes]
    after = f"after: {comparison.new.name}", [item.new for item in changes]
    draw_pairs(axes, labels, before, after)
    if label.startswith("share"):
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
