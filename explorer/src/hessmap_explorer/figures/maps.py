"""The spectra of two maps in one figure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hessmap.records import CurvatureMap, DensityCurve, PartCurvature, whole_of
from hessmap.views.plots.figure_data import MOST_POINTS, Axis, FigureData, Trace, thinned_places
from hessmap.views.plots.spectrum import FLOOR, density_data, magnitudes
from hessmap.views.plots.style import literal


def overlaid_spectra(old: tuple[str, CurvatureMap], new: tuple[str, CurvatureMap]) -> FigureData:
    """The loss Hessians of two maps: all eigenvalues in one figure, or their densities where one was estimated."""
    (old_name, before), (new_name, after) = old, new
    both = ((old_name, before.network, "pale"), (new_name, after.network, "loss"))
    if not (before.network.is_dense and after.network.is_dense):
        return _overlaid_densities([(name, whole_of(network).density, colour) for name, network, colour in both])
    traces = tuple(_absolute(name, network["loss"], colour) for name, network, colour in both)
    return FigureData(
        "Spectra of H_L", Axis("index of the eigenvalue, largest first"), Axis("|eigenvalue|", "log"), traces
    )


def _overlaid_densities(curves: Sequence[tuple[str, DensityCurve, str]]) -> FigureData:
    """As each is drawn alone; as plain densities where one is of an older map, on a linear scale."""
    made = [density_data(curve) for _, curve, _ in curves]
    if len({(figure.x, figure.y) for figure in made}) == 1:
        drawn, axes = [(figure.traces[0].x, figure.traces[0].y) for figure in made], (made[0].x, made[0].y)
    else:
        drawn, axes = (
            [(curve.grid, curve.density) for _, curve, _ in curves],
            (Axis("eigenvalue"), Axis("density", "log")),
        )
    traces = tuple(
        Trace(literal(name), "line", *values, colour=colour)
        for (name, _, colour), values in zip(curves, drawn, strict=True)
    )
    return FigureData("Densities of H_L", *axes, traces)


def _absolute(name: str, part: PartCurvature, colour: str) -> Trace:
    """All magnitudes of a part, not relative to anything; what is rounding is left out."""
    scale = part.measurement.scale or 1.0
    values = magnitudes(part) * scale
    places = thinned_places(values, MOST_POINTS, kept=(part.measurement.value,))
    shown = np.where(values[places] > FLOOR * scale, values[places], np.nan)
    return Trace(f"{literal(name)}, rank {part.rank:,}", "line", places + 1, shown, colour=colour)
