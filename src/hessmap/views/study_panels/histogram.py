"""The density of measured values with the predicted density over it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from hessmap.studies import Histogram, Row
from hessmap.views.study_panels.palette import colour
from hessmap.views.study_words import words


def draw_histogram(axes: Axes, figure: Histogram, rows: Sequence[Row]) -> None:
    values = np.concatenate([row.array(figure.values).ravel() for row in rows])
    counts, edges = np.histogram(values, bins=figure.bins, range=figure.x_limits)
    # The density is of all values, also of those outside the limits, so that it can be compared with the prediction.
    density = counts / (values.size * np.diff(edges))
    axes.stairs(density, edges, fill=True, color=colour(0), alpha=0.55, label="measured")
    if figure.density:
        at, predicted = rows[0].array(figure.density_at), rows[0].array(figure.density)
        axes.plot(at, predicted, color=colour(1), linewidth=1.5, label="predicted")
    axes.set_xlabel(words(figure.values))
    axes.set_ylabel("density")
