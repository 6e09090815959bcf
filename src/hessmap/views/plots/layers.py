"""Where the parameters are and where the curvature is, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hessmap.results.maps import CurvatureMap, LayerCurvature, NetworkCurvature
from hessmap.views.plots.pairs import draw_pairs
from hessmap.views.plots.style import INK, new_figure


def layers_figure(curvature_map: CurvatureMap) -> Figure:
    """Each layer's share of the parameters beside its share of the curvature (trace of the outer product)."""
    network = curvature_map.network
    figure = new_figure(width=6.6, height=1.2 + 0.6 * len(network.layers))
    axes = figure.subplots()
    _draw_shares(axes, network, f"{network.description}: where the parameters are, and where the curvature is")
    _note_ranks(axes, network.layers)
    return figure


def network_layers_figure(network: NetworkCurvature) -> Figure:
    """The same bars without title and notes, narrow enough for a phone."""
    figure = new_figure(width=4.6, height=1.0 + 0.6 * len(network.layers))
    _draw_shares(figure.subplots(), network, title="")
    return figure


def _draw_shares(axes: Axes, network: NetworkCurvature, title: str) -> None:
    labels = [f"layer {layer.name}\n{layer.shape}" for layer in network.layers]
    parameters = [layer.num_parameters / network.num_parameters for layer in network.layers]
    curvature = [layer.curvature_share for layer in network.layers]
    draw_pairs(axes, labels, ("parameters", parameters), ("curvature", curvature), title)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("share of the whole network", fontsize=9, color=INK)


def _note_ranks(axes: Axes, layers: Sequence[LayerCurvature]) -> None:
    """To the right of each pair of bars: the rank of the layer's block and its largest eigenvalue."""
    texts = [
        f"rank {layer.rank.value:,} of {layer.num_parameters:,}\n$\\lambda_1$ = {layer.top_eigenvalue:.3g}"
        for layer in layers
    ]
    notes = axes.secondary_yaxis("right")
    notes.set_yticks(range(len(layers)), texts)
    notes.tick_params(length=0, labelsize=8.5, colors=INK)
    notes.spines["right"].set_visible(False)
