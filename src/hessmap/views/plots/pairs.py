"""Pairs of horizontal bars, one pair a line: a pale one above a dark one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from hessmap.views.plots.style import BAR_COLOURS, INK, dress

Bars = tuple[str, Sequence[float]]


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
