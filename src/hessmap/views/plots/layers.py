"""Curvature layer by layer as pairs of bars: parameters beside curvature, two maps, errors of K-FAC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hessmap.errors import require
from hessmap.records import (
    Change,
    CurvatureMap,
    KroneckerError,
    LayerChange,
    LayerCurvature,
    MapComparison,
    NetworkCurvature,
)
from hessmap.views.plots.style import BAR_COLOURS, INK, dress, literal, new_figure

_MANY = 24  # bars that are read at a glance
Bars = tuple[str, Sequence[float]]
# What is drawn of a layer in two maps, by the label of its axis.
QUANTITIES: dict[str, Callable[[LayerChange], Change | None]] = {
    "largest eigenvalue of the layer's own block of the Hessian": lambda layer: layer.top_eigenvalue,
    "trace of the layer's block of the Hessian": lambda layer: layer.trace,
    "share of the curvature (trace of the GGN)": lambda layer: layer.curvature_share,
}


def layers_figure(curvature_map: CurvatureMap) -> Figure:
    """Draw each layer's share of the parameters next to its share of the curvature.

    Args:
        curvature_map: The map. Of more than 24 layers the most curved are drawn.

    Returns:
        Figure: A matplotlib figure.
    """
    network = curvature_map.network
    layers = _drawn_layers(network)
    figure = new_figure(width=6.6, height=1.2 + 0.6 * len(layers))
    axes = figure.subplots()
    description = literal(network.description)
    _draw_shares(axes, network, f"{description}: where the parameters are, and where the curvature is")
    _note_eigenvalues(axes, layers, network.has_ranks)
    return figure


def network_layers_figure(network: NetworkCurvature) -> Figure:
    """The same bars without title and notes, narrow enough for a phone."""
    figure = new_figure(width=4.6, height=1.0 + 0.6 * len(_drawn_layers(network)))
    _draw_shares(figure.subplots(), network, title="")
    return figure


def comparison_figure(comparison: MapComparison) -> Figure:
    """Draw the layers of two maps as bars, a panel per quantity; pale is the old map, dark the new one.

    Args:
        comparison: The comparison, of maps that have layers in common.

    Returns:
        Figure: A matplotlib figure.
    """
    require(bool(comparison.layers), "the bars need layers that both maps have", "there is none")
    figure = new_figure(width=1.0 + 3.4 * len(QUANTITIES), height=_height(comparison))
    panels = figure.subplots(1, len(QUANTITIES), sharey=True, squeeze=False)[0]
    for panel, label in zip(panels, QUANTITIES, strict=True):
        _draw_quantity(panel, comparison, label)
        panel.set_xlabel(label, fontsize=9, color=INK)
    return figure


def quantity_figure(comparison: MapComparison, label: str) -> Figure:
    """One quantity alone, narrow enough for a phone; what it is, the caption says."""
    figure = new_figure(width=4.6, height=_height(comparison))
    _draw_quantity(figure.subplots(), comparison, label)
    return figure


def _height(comparison: MapComparison) -> float:
    return 1.0 + 0.6 * len(comparison.layers)


def _draw_quantity(axes: Axes, comparison: MapComparison, label: str) -> None:
    changes = [QUANTITIES[label](layer) for layer in comparison.layers]
    before = f"before: {literal(comparison.old.name)}", [nan if item is None else item.old for item in changes]
    after = f"after: {literal(comparison.new.name)}", [nan if item is None else item.new for item in changes]
    draw_pairs(axes, [_layer_label(layer) for layer in comparison.layers], before, after)
    if label.startswith("share"):
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _draw_shares(axes: Axes, network: NetworkCurvature, title: str) -> None:
    layers = _drawn_layers(network)
    parameters = [layer.num_parameters / network.num_parameters for layer in layers]
    curvature = [layer.curvature_share for layer in layers]
    labels = [_layer_label(layer) for layer in layers]
    if len(layers) < len(network.layers):
        labels[-1] += f"\n(the {len(layers)} most curved of {len(network.layers)})"
    draw_pairs(axes, labels, ("parameters", parameters), ("curvature", curvature), title)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("share of the whole network", fontsize=9, color=INK)


def _drawn_layers(network: NetworkCurvature) -> Sequence[LayerCurvature]:
    """All of them, or of many those with the most curvature, in the order of the network."""
    if len(network.layers) <= _MANY:
        return network.layers
    heaviest = sorted(network.layers, key=lambda layer: -layer.curvature_share)[:_MANY]
    return [layer for layer in network.layers if layer in heaviest]


def _layer_label(layer: LayerCurvature | LayerChange) -> str:
    return f"layer {literal(layer.name)}\n{literal(layer.shape)}"


def _note_eigenvalues(axes: Axes, layers: Sequence[LayerCurvature], has_ranks: bool) -> None:
    """To the right of each pair of bars: the largest eigenvalue of the layer's block, and its rank on request."""
    texts = [
        (f"rank {layer.rank.value:,} of {layer.num_parameters:,}\n" if has_ranks and layer.rank is not None else "")
        + ("" if layer.top_eigenvalue is None else f"$\\lambda_1$ {_relation(layer)} {layer.top_eigenvalue:.3g}")
        for layer in layers
    ]
    notes = axes.secondary_yaxis("right")
    notes.set_yticks(range(len(layers)), texts)
    notes.tick_params(length=0, labelsize=8.5, colors=INK)
    notes.spines["right"].set_visible(False)


def _relation(layer: LayerCurvature) -> str:
    """A top eigenvalue that did not converge is a lower bound."""
    return "≥" if layer.top_converged is False else "="


def draw_pairs(axes: Axes, labels: Sequence[str], pale: Bars, dark: Bars, title: str = "") -> None:
    """Draw one pair of bars for each label, first label on top; both series come with their names.

    The legend stands above the bars, or where it finds room among them if a title stands there.
    """
    for (name, widths), colour, shift in zip((pale, dark), BAR_COLOURS, (-0.19, 0.19), strict=True):
        axes.barh([place + shift for place in range(len(labels))], widths, 0.36, color=colour, label=name)
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.set_yticks(range(len(labels)), labels)
    dress(axes, title)
    axes.grid(visible=False, axis="y")
    above: dict[str, Any] = {} if title else {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": 2}
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK, **above)


def kronecker_error_figure(found: KroneckerError) -> Figure:
    """Draw the relative Frobenius error and the overlap of the leading eigenspaces of every block.

    Args:
        found: The error; its first layer is on top.

    Returns:
        Figure: A matplotlib figure.
    """
    figure = new_figure(width=6.6, height=1.2 + 0.6 * len(found.blocks))
    axes = figure.subplots()
    labels = [f"{literal(block.label)}\n{block.size:,} parameters" for block in found.blocks]
    errors = [block.frobenius_error for block in found.blocks]
    overlaps = [nan if block.overlap is None else block.overlap for block in found.blocks]
    what = f"overlap of the top {found.count} eigenvectors" if found.count > 1 else "overlap of the top eigenvector"
    draw_pairs(axes, labels, ("relative Frobenius error", errors), (what, overlaps))
    spreads = [block.frobenius_standard_error for block in found.blocks]
    places = [place - 0.19 for place in range(len(labels))]
    axes.errorbar(errors, places, xerr=spreads, fmt="none", ecolor="#222222", elinewidth=1)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return figure
