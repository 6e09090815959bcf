"""The plane as a classifier divides it: regions, boundaries and the points where three classes meet."""

from __future__ import annotations

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hessmap.results import ClassRegions
from hessmap.views.plots.style import INK, PAPER, dress, new_figure

# Okabe and Ito, pale for regions and full for samples.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8a8a8a")


def class_regions_figure(
    regions: ClassRegions, points: NDArray[np.float64] | None = None, labels: NDArray[np.int64] | None = None
) -> Figure:
    """Regions in pale colours, boundaries as lines, tripoints as rings; the samples as dots if they are given."""
    left, right, bottom, top = regions.box
    height = float(np.clip(4.6 * (top - bottom) / (right - left), 2.4, 7.0))
    figure = new_figure(width=5.2, height=height + 0.5)
    axes = figure.subplots()
    count = int(regions.labels.max()) + 1
    colours = [_COLOURS[place % len(_COLOURS)] for place in range(count)]
    axes.imshow(
        regions.labels, origin="lower", extent=(left, right, bottom, top), cmap=ListedColormap(colours), alpha=0.25,
        vmin=-0.5, vmax=count - 0.5, interpolation="nearest", aspect="equal",
    )  # fmt: skip
    axes.add_collection(LineCollection(list(regions.boundaries), colors=INK, linewidths=1.0))
    if points is not None:
        chosen = np.zeros(len(points), dtype=np.int64) if labels is None else labels
        axes.scatter(points[:, 0], points[:, 1], s=7, c=[_COLOURS[label % len(_COLOURS)] for label in chosen], zorder=3)
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
