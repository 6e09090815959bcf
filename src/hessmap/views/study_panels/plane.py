"""A part of the plane: class regions, points, points that stand out, arrows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap

from hessmap.studies import Plane, Row
from hessmap.views.plots.style import FAINT, INK
from hessmap.views.study_panels.palette import colour


def draw_plane(axes: Axes, figure: Plane, rows: Sequence[Row]) -> None:
    """Draw the first of the rows: two pictures of a plane cannot be averaged."""
    row = rows[0]
    left, right, bottom, top = row.array(figure.box)
    if figure.labels:
        labels = row.array(figure.labels)
        count = int(labels.max()) + 1
        shades = ListedColormap([colour(place) for place in range(count)])
        axes.imshow(
            labels, origin="lower", extent=(left, right, bottom, top), cmap=shades, alpha=0.3,
            vmin=-0.5, vmax=count - 0.5, interpolation="nearest",
        )  # fmt: skip
    if figure.points:
        points = row.array(figure.points)
        kinds = row.array(figure.kinds).astype(int) if figure.kinds else np.zeros(len(points), dtype=int)
        axes.scatter(points[:, 0], points[:, 1], s=4, c=[colour(kind) for kind in kinds])
    if figure.arrows:
        arrows = row.array(figure.arrows)
        axes.add_collection(LineCollection(list(arrows.reshape(-1, 2, 2)), colors=FAINT, linewidths=0.7))
        axes.scatter(arrows[:, 0], arrows[:, 1], s=7, c=colour(2), zorder=3)
        axes.scatter(arrows[:, 2], arrows[:, 3], s=7, c=colour(1), zorder=3)
    if figure.rings:
        rings = row.array(figure.rings).reshape(-1, 2)
        axes.scatter(rings[:, 0], rings[:, 1], s=60, facecolors="none", edgecolors=INK, linewidths=1.6, zorder=4)
    axes.set_aspect("equal")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
