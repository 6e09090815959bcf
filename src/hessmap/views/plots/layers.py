"""Where the parameters are and where the curvature is, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hessmap.results.maps import CurvatureMap, LayerCurvature
from hessmap.views.plots.style import BAR_COLOURS, INK, dress, new_figure


def layers_figure(curvature_map: CurvatureMap) -> Figure:
    """Each layer's share of the parameters beside its share of the curvature (trace of the outer product)."""
    network = curvature_map.network
    layers = network.layers
    figure = new_figure(width=6.6, height=1.2 + 0.6 * len(layers))
    axes = figure.subplots()
    shares = {
        "parameters": [layer.num_parameters / network.num_parameters for layer in layers],
        "curvature": [layer.curvature_share for layer in layers],
    }
    for (label, values), colour, shift in zip(shares.items(), BAR_COLOURS, (-0.19, 0.19), strict=True):
        axes.barh([place + shift for place in range(len(layers))], values, 0.36, color=colour, label=label)
    axes.set_ylim(len(layers) - 0.45, -0.55)
    axes.set_yticks(range(len(layers)), [f"layer {layer.name}\n{layer.shape}" for layer in layers])
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("share of the whole network", fontsize=9, color=INK)
    dress(axes, title=f"{network.description}: where the parameters are, and where the curvature is")
    axes.grid(visible=False, axis="y")
    axes.legend(frameon=False, fontsize=8.5)
    _note_ranks(axes, layers)
    return figure


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
