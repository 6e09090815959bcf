"""Spectra: of the three Hessians with the predicted ranks drawn in, of one matrix, and as a density."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi, sqrt
from typing import Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import NDArray

from hessmap.records import (
    HESSIAN_SYMBOLS,
    CurvatureMap,
    DensityCurve,
    DensityEstimate,
    NetworkCurvature,
    Part,
    PartCurvature,
    Spectrum,
    whole_of,
)
from hessmap.views.plots.drawing import draw, symmetric_ticks
from hessmap.views.plots.figure_data import Axis, FigureData, Line, Trace, Values, thinned_places, thinning_note
from hessmap.views.plots.style import FAINT, HESSIAN_COLOURS, INK, dress, legend_below, literal, new_figure

# Zeros of a float64 eigensolver lie near 1e-16 of the norm; what is below this floor is not drawn.
FLOOR = 1e-19
_VISIBLE = 0.05  # of the height of a single eigenvalue: what is below is not drawn
Floats = NDArray[np.float64]
_NAMES: dict[Part, str] = {"loss": "Hessian", "outer_product": "GGN", "functional": "their difference"}
HESSIANS: tuple[Part, ...] = ("loss", "outer_product", "functional")  # the sum first
_INDEX = r"index $i$ of the eigenvalue, largest first"
_MAGNITUDE = r"$|\lambda_i|\;/\;\|H_L\|$"


def spectrum_data(network: NetworkCurvature, python: str = "", most: int | None = None) -> FigureData:
    """|eigenvalue| / ||H_L|| of the Hessians against the index, with lines at the predicted ranks."""
    parts = sorted(network.parts, key=lambda part: HESSIANS.index(part.part))
    traces = tuple(_part_trace(part, network.has_ranks, most) for part in parts)
    loss = network["loss"].measurement
    cut = loss.threshold / loss.scale if loss.scale > 0 else 0.0
    predicted = [(part, part.prediction) for part in parts if part.prediction is not None]
    lines = (
        *(Line(rank.value, label=f"{rank.kind_text} {rank.value:,}", colour=part.part) for part, rank in predicted),
        Line(FLOOR, "y", "counted as zero", end=cut),
    )
    size = network.num_parameters
    note = thinning_note(max(len(trace.x) for trace in traces), size)
    axes = Axis(_INDEX, limits=(0, size)), Axis(_MAGNITUDE, "log", limits=(FLOOR, 4.0))
    return FigureData(f"Spectra of the {literal(network.name)}", *axes, traces, lines, python, note)


def magnitudes(part: PartCurvature) -> Floats:
    """Of all eigenvalues over the norm that thresholds are relative to, descending."""
    sorted_values: Floats = np.sort(np.abs(part.spectrum.eigenvalues))[::-1] / (part.measurement.scale or 1.0)
    return sorted_values


def _part_trace(part: PartCurvature, has_ranks: bool, most: int | None) -> Trace:
    values = magnitudes(part)
    places = thinned_places(values, most, kept=(part.measurement.value,))
    label = f"${HESSIAN_SYMBOLS[part.part]}$  " + (f"rank {part.rank:,}" if has_ranks else f"({_NAMES[part.part]})")
    label += " (certified)" if has_ranks and part.certificate is not None else ""
    shown = np.where(values[places] > FLOOR, values[places], np.nan)
    return Trace(label, "line", places + 1, shown, colour=part.part)


def spectrum_figure(curvature_map: CurvatureMap) -> Figure:
    """Draw |eigenvalue| / ||H_L|| against the index, a panel per network; dashed lines are predicted ranks.

    Args:
        curvature_map: The map. For estimates, which know only the largest eigenvalues, the density is drawn.

    Returns:
        Figure: A matplotlib figure.
    """
    if not curvature_map.network.is_dense:
        return map_density_figure(curvature_map)
    networks = curvature_map.networks
    figure = new_figure(width=1.2 + 4.1 * len(networks), height=4.7)
    panels = figure.subplots(1, len(networks), sharey=True, squeeze=False)[0]
    for panel, network in zip(panels, networks, strict=True):
        _draw_network(panel, network, title=literal(f"{network.name}  ({network.description})"))
    for panel in panels[1:]:
        panel.set_ylabel("")
    return figure


def network_spectrum_figure(network: NetworkCurvature) -> Figure:
    """The panel of one network alone, without a title, narrow enough for a phone; of estimates the density."""
    if not network.is_dense:
        return network_density_figure(network)
    figure = new_figure(width=4.6, height=4.5)
    _draw_network(figure.subplots(), network, title="")
    return figure


def _draw_network(axes: Axes, network: NetworkCurvature, title: str) -> None:
    handles = draw(axes, spectrum_data(network), title)
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=8))
    axes.yaxis.set_minor_locator(NullLocator())
    legend_below(axes, handles)


def eigenvalues_figure(spectrum: Spectrum) -> Figure:
    """Draw the magnitudes of the eigenvalues against their index, largest first, negative ones in another colour.

    Args:
        spectrum: The eigenvalues.

    Returns:
        Figure: A matplotlib figure.

    Notes:
        Eigenvalues within their error (that of a float64 eigensolver if it is not stated) are drawn without a sign.
    """
    figure = new_figure(width=5.4, height=3.7)
    axes = figure.subplots()
    values = spectrum.eigenvalues[np.argsort(-np.abs(spectrum.eigenvalues), kind="stable")]
    size = values.size if spectrum.size is None else spectrum.size
    error = size * float(np.finfo(np.float64).eps) * spectrum.norm
    error = error if spectrum.eigenvalue_error is None else spectrum.eigenvalue_error
    index = np.arange(1, values.size + 1)
    for name, chosen, colour in (
        ("positive", values > error, HESSIAN_COLOURS["outer_product"]),
        ("negative", values < -error, HESSIAN_COLOURS["functional"]),
        ("within the error", (values != 0) & (np.abs(values) <= error), FAINT),
    ):
        if chosen.any():
            label = f"{name}: {int(chosen.sum()):,}"
            axes.plot(index[chosen], np.abs(values[chosen]), ".", color=colour, markersize=4, label=label)
            axes.set_yscale("log")
    axes.set_xlim(0, max(1, values.size) + 0.5)
    axes.set_xlabel(f"index of the eigenvalue, largest first ({values.size:,} of {size:,})", fontsize=9, color=INK)
    axes.set_ylabel(r"$|\lambda_i|$", fontsize=10, color=INK)
    doubt = "" if spectrum.converged else ", NOT converged"
    dress(axes, f"eigenvalues ({literal(spectrum.method)}{doubt})")
    if axes.lines:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


def map_density_figure(curvature_map: CurvatureMap) -> Figure:
    """Draw the density of the eigenvalues of the loss Hessian, with marks at the largest ones.

    Args:
        curvature_map: The map.

    Returns:
        Figure: A matplotlib figure.
    """
    return network_density_figure(curvature_map.network)


def network_density_figure(network: NetworkCurvature) -> Figure:
    """Draw the density of the eigenvalues of one network, with marks at the largest ones.

    Args:
        network: The network of a map.

    Returns:
        Figure: A matplotlib figure.
    """
    whole = whole_of(network)
    return density_figure(whole.density, known=whole.eigenvalues)


@dataclass(frozen=True)
class DrawnDensity:
    """A density as it is drawn: over eigenvalues on a symmetric logarithmic axis that is linear up to ``edge``.

    ``floor`` is what a curve must exceed to be drawn; below it is smoothing, not spectrum.
    """

    grid: Floats
    curve: Floats
    lower: Floats
    upper: Floats
    edge: float
    floor: float
    label: str
    smoothing: str

    @classmethod
    def of(cls, estimate: DensityEstimate | DensityCurve) -> Self:
        """Eigenvalues per decade where the smoothing follows the axis: the area under the curve then counts them."""
        part = estimate.linear_part if isinstance(estimate, DensityCurve) else 0.0
        unit: Floats | float = 1.0
        if part <= 0:
            single = 1 / (estimate.size * estimate.width * sqrt(2 * pi))
            floor = min(1e-6 * float(estimate.density.max(initial=0.0)), _VISIBLE * single)
            edge, label, smoothing = estimate.width, "density", f"smoothed by {estimate.width:.2g}"
        else:
            unit = estimate.size * log(10) * np.hypot(estimate.grid, part)
            floor = _VISIBLE * log(10) / (estimate.width * sqrt(2 * pi))
            edge, label, smoothing = part, "eigenvalues per decade", f"smoothed by {estimate.width:.0%}"
        curves = unit * estimate.density, unit * estimate.lower, unit * estimate.upper
        return cls(estimate.grid, *curves, edge, floor, label, smoothing)


def density_data(estimate: DensityEstimate | DensityCurve, known: Floats | None = None, python: str = "") -> FigureData:
    """The density of the eigenvalues with its band over the probes, where it is an estimate; ``known`` ones marked."""
    drawn = DrawnDensity.of(estimate)
    low: Values = ()
    high: Values = ()
    if estimate.num_probes:
        low, high = (np.maximum(band, drawn.floor) for band in (drawn.lower, drawn.upper))
    band = f"{estimate.confidence:.0%} band over {estimate.num_probes} probes" if len(low) else "all eigenvalues"
    curve = np.where(drawn.curve >= drawn.floor, drawn.curve, np.nan)
    traces = [Trace(band, "line", drawn.grid, curve, low, high, colour="outer_product", in_legend=bool(len(low)))]
    if known is not None and len(low) and len(known):
        label = "largest eigenvalue" if len(known) == 1 else f"{len(known)} largest eigenvalues"
        traces.append(Trace(label, "rug", known, np.full(len(known), drawn.floor), colour="ink"))
    axes = (
        _eigenvalue_axis(drawn),
        Axis(drawn.label, "log", limits=(drawn.floor, None)) if drawn.floor > 0 else Axis(drawn.label),
    )
    title = f"density of {estimate.size:,} eigenvalues, {drawn.smoothing}"
    return FigureData(title, *axes, tuple(traces), (), python)


def _eigenvalue_axis(drawn: DrawnDensity) -> Axis:
    """Linear if all eigenvalues are within a decade."""
    ends = float(drawn.grid.min()), float(drawn.grid.max())
    axis = Axis("eigenvalue (symmetric logarithmic scale)", "symlog", limits=ends, edge=drawn.edge)
    is_symmetric = sum(ends[0] <= tick <= ends[1] for tick in symmetric_ticks(axis)) > 1
    return axis if is_symmetric else Axis("eigenvalue")


def density_figure(estimate: DensityEstimate | DensityCurve, known: Floats | None = None) -> Figure:
    """Draw the density of the eigenvalues over a symmetric logarithmic axis, with its confidence band over the probes.

    Args:
        estimate: The density.
        known: Eigenvalues to mark below it. Default: none.

    Returns:
        Figure: A matplotlib figure.

    Notes:
        The axis is linear if all eigenvalues are within a decade.
    """
    figure = new_figure(width=5.4, height=3.7)
    axes = figure.subplots()
    data = density_data(estimate, known)
    handles = draw(axes, data, data.title, linewidth=1.4)
    if handles:
        axes.legend(handles=handles, frameon=False, fontsize=8, labelcolor=INK)
    return figure
