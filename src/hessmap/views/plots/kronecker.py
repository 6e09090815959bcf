"""How well a Kronecker-factored curvature describes each layer, as pairs of bars."""

from __future__ import annotations

from math import nan

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hessmap.records import KroneckerError
from hessmap.views.plots.layers import draw_pairs
from hessmap.views.plots.style import literal, new_figure


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
