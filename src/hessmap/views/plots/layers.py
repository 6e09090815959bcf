"""Curvature layer by layer as pairs of bars: parameters beside curvature, two maps, errors of K-FAC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
from hessmap.views.plots.drawing import draw
from hessmap.views.plots.figure_data import Axis, FigureData, Trace
from hessmap.views.plots.style import INK, literal, new_figure

_MANY = 24  # bars that are read at a glance
# What is drawn of a layer in two maps, by the label of its axis.
QUANTITIES: dict[str, Callable[[LayerChange], Change | None]] = {
    "largest eigenvalue of the layer's own block of the Hessian": lambda layer: layer.top_eigenvalue,
    "trace of the layer's block of the Hessian": lambda layer: layer.trace,
    "share of the curvature (trace of the GGN)": lambda layer: layer.curvature_share,
}


def layers_data(network: NetworkCurvature, python: str = "", most: int | None = None) -> FigureData:
    """Each layer's share of the parameters beside its share of the curvature; of many the ``most`` curved ones."""
    layers = _drawn_layers(network, most)
    names = tuple(layer.name for layer in layers)
    shares = np.array([layer.curvature_share for layer in layers])
    errors = np.array([layer.share_error for layer in layers])
    low, high = (shares - errors, shares + errors) if errors.any() else ((), ())
    curvature = f"curvature (trace of the {'GGN' if network.shares_of == 'outer_product' else 'Hessian'})"
    sizes = [layer.num_parameters / network.num_parameters for layer in layers]
    axis = Axis(
        "layer",
        names=names,
        is_reversed=True,
        details=tuple(layer.shape for layer in layers),
        remarks=tuple(_remark(layer, network.has_ranks) for layer in layers),
    )
    return FigureData(
        "Where the parameters are, and where the curvature is",
        Axis("share of the whole network", is_share=True),
        axis,
        (
            Trace("parameters", "bars", sizes, names, colour="pale", keys=names),
            Trace(curvature, "bars", shares, names, low, high, colour="outer_product", keys=names),
        ),
        python=python,
        note=f"the {len(layers)} most curved of {len(network.layers)}" if len(layers) < len(network.layers) else "",
    )


def changes_data(comparison: MapComparison, label: str, python: str = "") -> FigureData:
    """One quantity of every layer that both maps have, before and after."""
    names = tuple(layer.name for layer in comparison.layers)
    changes = [QUANTITIES[label](layer) for layer in comparison.layers]
    old = [None if change is None else change.old for change in changes]
    new = [None if change is None else change.new for change in changes]
    return FigureData(
        label[:1].upper() + label[1:],
        Axis(label, is_share=label.startswith("share")),
        Axis("layer", names=names, is_reversed=True, details=tuple(layer.shape for layer in comparison.layers)),
        (
            Trace(f"before: {literal(comparison.old.name)}", "bars", old, names, colour="pale"),
            Trace(f"after: {literal(comparison.new.name)}", "bars", new, names, colour="outer_product"),
        ),
        python=python,
    )


def layers_figure(curvature_map: CurvatureMap) -> Figure:
    """Draw each layer's share of the parameters next to its share of the curvature.

    Args:
        curvature_map: The map. Of more than 24 layers the most curved are drawn.

    Returns:
        Figure: A matplotlib figure.
    """
    network = curvature_map.network
    data = layers_data(network, most=_MANY)
    description = literal(network.description)
    return _bars_figure(data, 6.6, f"{description}: where the parameters are, and where the curvature is")


def network_layers_figure(network: NetworkCurvature) -> Figure:
    """The same bars without title and notes, narrow enough for a phone."""
    data = layers_data(network, most=_MANY)
    return _bars_figure(replace(data, y=replace(data.y, remarks=())), 4.6)


def comparison_figure(comparison: MapComparison) -> Figure:
    """Draw the layers of two maps as bars, a panel per quantity; pale is the old map, dark the new one.

    Args:
        comparison: The comparison, of maps that have layers in common.

    Returns:
        Figure: A matplotlib figure.
    """
    require(bool(comparison.layers), "the bars need layers that both maps have", "there is none")
    figure = new_figure(width=1.0 + 3.4 * len(QUANTITIES), height=1.0 + 0.6 * len(comparison.layers))
    panels = figure.subplots(1, len(QUANTITIES), sharey=True, squeeze=False)[0]
    for panel, label in zip(panels, QUANTITIES, strict=True):
        _draw_bars(panel, changes_data(comparison, label))
    return figure


def quantity_figure(comparison: MapComparison, label: str) -> Figure:
    """One quantity alone, narrow enough for a phone; what it is, the caption says."""
    data = changes_data(comparison, label)
    return _bars_figure(replace(data, x=replace(data.x, label="")), 4.6)


def kronecker_error_figure(found: KroneckerError) -> Figure:
    """Draw the relative Frobenius error and the overlap of the leading eigenspaces of every block.

    Args:
        found: The error; its first layer is on top.

    Returns:
        Figure: A matplotlib figure.
    """
    names = tuple(block.label for block in found.blocks)
    errors = np.array([block.frobenius_error for block in found.blocks])
    spreads = np.array([block.frobenius_standard_error for block in found.blocks])
    overlaps = [block.overlap for block in found.blocks]
    what = f"overlap of the top {found.count} eigenvectors" if found.count > 1 else "overlap of the top eigenvector"
    sizes = tuple(f"{block.size:,} parameters" for block in found.blocks)
    data = FigureData(
        "Error of the Kronecker factors",
        Axis(is_share=True),
        Axis(names=names, is_reversed=True, details=sizes),
        (
            Trace("relative Frobenius error", "bars", errors, names, errors - spreads, errors + spreads, colour="pale"),
            Trace(what, "bars", overlaps, names, colour="outer_product"),
        ),
    )
    return _bars_figure(data, 6.6)


def _bars_figure(data: FigureData, width: float, title: str = "") -> Figure:
    is_wide = width > 5
    figure = new_figure(width, (1.2 if is_wide else 1.0) + 0.6 * len(data.y.names))
    _draw_bars(figure.subplots(), data, title)
    return figure


def _draw_bars(axes: Axes, data: FigureData, title: str = "") -> None:
    """The legend stands above the bars, or where it finds room among them if a title stands there."""
    handles = draw(axes, data, title)
    above: dict[str, Any] = {} if title else {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": 2}
    axes.legend(handles=handles, frameon=False, fontsize=8.5, labelcolor=INK, **above)


def _drawn_layers(network: NetworkCurvature, most: int | None) -> Sequence[LayerCurvature]:
    """All of them, or of many those with the most curvature, in the order of the network."""
    if most is None or len(network.layers) <= most:
        return network.layers
    heaviest = sorted(network.layers, key=lambda layer: -layer.curvature_share)[:most]
    return [layer for layer in network.layers if layer in heaviest]


def _remark(layer: LayerCurvature, has_ranks: bool) -> str:
    """The largest eigenvalue of the layer's block, at least that if it did not converge, and its rank on request."""
    rank = f"rank {layer.rank.value:,} of {layer.num_parameters:,}\n" if has_ranks and layer.rank is not None else ""
    relation = "≥" if layer.top_converged is False else "="
    return rank + ("" if layer.top_eigenvalue is None else f"$\\lambda_1$ {relation} {layer.top_eigenvalue:.3g}")
