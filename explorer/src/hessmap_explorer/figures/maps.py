"""Figures of a map and of two: spectra, densities, layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hessmap.records import (
    HESSIAN_SYMBOLS,
    Change,
    CurvatureMap,
    DensityCurve,
    DensityEstimate,
    MapComparison,
    NetworkCurvature,
    Part,
    PartCurvature,
    whole_of,
)
from hessmap.views.plots.layers import QUANTITIES
from hessmap.views.plots.spectrum import FLOOR, DrawnDensity
from hessmap_explorer.figures.figure import Axis, FigureData, Floats, Line, Trace, thinned_places, thinning_note

PARTS: tuple[Part, ...] = ("loss", "outer_product", "functional")  # the sum first, as every screen shows them
_INDEX = "index of the eigenvalue, largest first"
_MAGNITUDE = "|eigenvalue| / norm of H_L"


def spectrum_data(network: NetworkCurvature, python: str = "") -> FigureData:
    """|eigenvalue| / ||H_L|| of the three Hessians against the index; lines across at the predicted ranks."""
    parts = shown_parts(network)
    traces = tuple(_part_trace(part) for part in parts)
    lines = tuple(
        Line(part.prediction.value, label=f"predicted {part.prediction.value:,}", colour=part.part)
        for part in parts
        if part.prediction is not None
    )
    size = network.num_parameters
    note = thinning_note(max(len(trace.x) for trace in traces), size)
    axes = Axis(_INDEX, limits=(0, size)), Axis(_MAGNITUDE, "log", limits=(FLOOR, 4.0))
    return FigureData(f"Spectra of the {network.name}", *axes, traces, lines, python, note)


def shown_parts(network: NetworkCurvature) -> list[PartCurvature]:
    """The Hessians that a map contains, in the order of every screen."""
    return sorted(network.parts, key=lambda part: PARTS.index(part.part))


def magnitudes(part: PartCurvature) -> Floats:
    """Of all eigenvalues over the norm that thresholds are relative to, descending."""
    scale = part.measurement.scale or 1.0
    sorted_values: Floats = np.sort(np.abs(part.spectrum.eigenvalues))[::-1] / scale
    return sorted_values


def _part_trace(part: PartCurvature) -> Trace:
    values = magnitudes(part)
    places = thinned_places(values, kept=(part.measurement.value,))
    shown = np.where(values[places] > FLOOR, values[places], np.nan)
    return Trace(f"{HESSIAN_SYMBOLS[part.part]}, rank {part.rank:,}", "line", places + 1, shown, colour=part.part)


def density_data(curve: DensityCurve | DensityEstimate, python: str = "") -> FigureData:
    """The density of the eigenvalues with its band over the probes, where it is an estimate."""
    drawn = DrawnDensity.of(curve)
    is_symmetric = isinstance(curve, DensityCurve) and curve.linear_part > 0
    # The page takes the smallest magnitude for the edge of the linear part.
    kept = np.abs(drawn.grid) >= drawn.edge / 4 if is_symmetric else np.full(len(drawn.grid), True)
    density = np.where(drawn.curve >= drawn.floor, drawn.curve, np.nan)[kept]
    bands = (drawn.lower, drawn.upper) if curve.num_probes else ()
    low, high = [np.maximum(band, drawn.floor)[kept] for band in bands] or ((), ())
    band = f"{curve.confidence:.0%} band over {curve.num_probes} probes" if curve.num_probes else "all eigenvalues"
    trace = Trace(
        band, "line", drawn.grid[kept], density, low, high, colour="outer_product", in_legend=bool(curve.num_probes)
    )
    title = f"Density of {curve.size:,} eigenvalues of H_L, {drawn.smoothing}"
    axes = (
        Axis("eigenvalue", "symlog" if is_symmetric else "linear"),
        Axis(drawn.label, "log" if drawn.floor > 0 else "linear"),
    )
    return FigureData(title, *axes, (trace,), (), python)


def layers_data(network: NetworkCurvature, python: str = "") -> FigureData:
    """Each layer's share of the parameters beside its share of the curvature."""
    names = [layer.name for layer in network.layers]
    sizes = [layer.num_parameters / network.num_parameters for layer in network.layers]
    shares = [layer.curvature_share for layer in network.layers]
    errors = [layer.share_error for layer in network.layers]
    low = [share - error for share, error in zip(shares, errors, strict=True)] if any(errors) else ()
    high = [share + error for share, error in zip(shares, errors, strict=True)] if any(errors) else ()
    curvature = f"curvature (trace of the {'GGN' if network.shares_of == 'outer_product' else 'Hessian'})"
    return FigureData(
        "Where the parameters are, and where the curvature is",
        Axis("share of the whole network"),
        Axis("layer", names=tuple(names), is_reversed=True),
        (
            Trace("parameters", "bars", sizes, names, colour="pale", keys=names),
            Trace(curvature, "bars", shares, names, low, high, colour="outer_product", keys=names),
        ),
        python=python,
    )


def overlaid_spectra(old: tuple[str, CurvatureMap], new: tuple[str, CurvatureMap]) -> FigureData:
    """The loss Hessians of two maps: all eigenvalues in one figure, or their densities where one was estimated."""
    (old_name, before), (new_name, after) = old, new
    both = ((old_name, before.network, "pale"), (new_name, after.network, "loss"))
    if not (before.network.is_dense and after.network.is_dense):
        return _overlaid_densities([(name, whole_of(network).density, colour) for name, network, colour in both])
    traces = tuple(_absolute(name, network["loss"], colour) for name, network, colour in both)
    return FigureData("Spectra of H_L", Axis(_INDEX), Axis("|eigenvalue|", "log"), traces)


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
        Trace(name, "line", *values, colour=colour) for (name, _, colour), values in zip(curves, drawn, strict=True)
    )
    return FigureData("Densities of H_L", *axes, traces)


def _absolute(name: str, part: PartCurvature, colour: str) -> Trace:
    """All magnitudes of a part, not relative to anything; what is rounding is left out."""
    scale = part.measurement.scale or 1.0
    values = magnitudes(part) * scale
    places = thinned_places(values, kept=(part.measurement.value,))
    shown = np.where(values[places] > FLOOR * scale, values[places], np.nan)
    return Trace(f"{name}, rank {part.rank:,}", "line", places + 1, shown, colour=colour)


def changes_data(comparison: MapComparison, label: str, python: str = "") -> FigureData:
    """One quantity of every layer that both maps have, before and after."""
    names = [layer.name for layer in comparison.layers]
    changes = [QUANTITIES[label](layer) for layer in comparison.layers]
    bars = tuple(
        Trace(side.name, "bars", [_side(change, place) for change in changes], names, colour=colour)
        for place, (side, colour) in enumerate(((comparison.old, "pale"), (comparison.new, "outer_product")))
    )
    title = label[:1].upper() + label[1:]
    return FigureData(title, Axis(label), Axis("layer", names=tuple(names), is_reversed=True), bars, python=python)


def _side(change: Change | None, place: int) -> float | None:
    return None if change is None else (change.old, change.new)[place]
