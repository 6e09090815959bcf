"""The function of a network layer by layer, and the gauge of a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hessmap.records import BottleneckView
from hessmap.views.plots.certificate import error_marks, gauge_end
from hessmap.views.plots.functions import relative_values
from hessmap_explorer.figures.figure import Axis, FigureData, Floats, Line, Trace, series

if TYPE_CHECKING:
    from hessmap.certificates import Certificate

_COUNT = 10  # singular values of a layer that are drawn


def bottleneck_figures(view: BottleneckView, python: str = "") -> list[FigureData]:
    """Representations, ranks, the impact of the nonlinearity, and weights, against depth."""
    names = tuple(layer.name for layer in view.layers)
    depth = Axis("layer", names=names)
    places = list(range(len(names)))
    relative = [relative_values(layer.centred_singular_values) for layer in view.layers]
    impacts = [layer.nonlinearity for layer in view.layers]
    ranks = (
        Trace("centred rank", "both", places, [layer.centred_rank for layer in view.layers], colour="loss"),
        Trace(
            "effective rank", "both", places, [layer.effective_rank for layer in view.layers], colour="outer_product"
        ),
        Trace("stable rank", "both", places, [layer.stable_rank for layer in view.layers], colour="functional"),
        Trace("width", "dashed", places, [layer.width for layer in view.layers], colour="faint"),
    )
    tolerance = (Line(view.relative_tolerance, axis="y", label=f"tolerance {view.relative_tolerance:g}"),)
    values = Axis("over the largest", "log", limits=(1e-4, 1.5))
    impact = (Trace("||Z - s(Z)|| / ||Z||", "both", places, impacts, colour="outer_product", in_legend=False),)
    weights = _curves([layer.weight_singular_values for layer in view.layers])
    return [
        FigureData("Ranks of the representations", depth, Axis("rank", "log"), ranks, python=python),
        FigureData(
            "Singular values of the representations", depth, values, _curves(relative), tolerance, python=python
        ),
        FigureData("Impact of the nonlinearity", depth, Axis("share of the norm"), impact, python=python),
        FigureData("Singular values of the weights", depth, Axis("singular value"), weights, python=python),
    ]


def _curves(values: list[Floats]) -> tuple[Trace, ...]:
    """The k-th value of every layer, one curve for each k, darkest first."""
    table = np.full((len(values), _COUNT), np.nan)
    for place, row in enumerate(values):
        table[place, : min(_COUNT, len(row))] = row[:_COUNT]
    return tuple(
        Trace(
            f"value {rank + 1}",
            "both",
            list(range(len(values))),
            table[:, rank],
            colour="outer_product",
            opacity=1.0 - 0.8 * rank / _COUNT,
            in_legend=False,
        )
        for rank in range(_COUNT)
    )


def gauge_data(certificate: Certificate, python: str = "") -> FigureData:
    """The bound as a bar, what was measured as points, the held-out bound as a line."""
    row = " "
    bound = Trace(f"bound {certificate.bound:.4f}", "bars", [certificate.bound], [row], colour="pale")
    points = tuple(
        Trace(f"{label} {value:.4f}", "points", [value], [row], colour=series(place))
        for place, (label, value) in enumerate(error_marks(certificate))
    )
    held_out = certificate.held_out_bound
    lines = () if held_out is None else (Line(held_out, label=f"held-out bound {held_out:.4f}"),)
    axis = Axis(
        "clipped squared error" if certificate.loss == "squared" else "error", limits=(0, gauge_end(certificate))
    )
    title = f"Certified with confidence {certificate.confidence:.1%}, KL {certificate.kl:,.1f}"
    return FigureData(title, axis, Axis(names=(row,), is_reversed=True), (bound, *points), lines, python)
