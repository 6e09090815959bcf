"""Spectra: of the three Hessians with the predicted ranks drawn in, of one matrix, and as a density."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log, log10, pi, sqrt
from typing import Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator
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
from hessmap.views.plots.style import FAINT, HESSIAN_COLOURS, INK, SHADE, dress, legend_below, literal, new_figure

# Zeros of a float64 eigensolver lie near 1e-16 of the norm; what is below this floor is not drawn.
FLOOR = 1e-19
_VISIBLE = 0.05  # of the height of a single eigenvalue: what is below is not drawn
_NUM_TICKS = 8
Floats = NDArray[np.float64]
_NAMES: dict[Part, str] = {"loss": "Hessian", "outer_product": "GGN", "functional": "their difference"}
_MAGNITUDE = r"$|\lambda_i|\;/\;\|H_L\|$"


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
    panels[0].set_ylabel(_MAGNITUDE, fontsize=10, color=INK)
    return figure


def network_spectrum_figure(network: NetworkCurvature) -> Figure:
    """The panel of one network alone, without a title, narrow enough for a phone; of estimates the density."""
    if not network.is_dense:
        return network_density_figure(network)
    figure = new_figure(width=4.6, height=4.5)
    axes = figure.subplots()
    _draw_network(axes, network, title="")
    axes.set_ylabel(_MAGNITUDE, fontsize=10, color=INK)
    return figure


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
    colour = HESSIAN_COLOURS["outer_product"]
    drawn = DrawnDensity.of(estimate)
    if estimate.num_probes:
        label = f"{estimate.confidence:.0%} band over {estimate.num_probes} probes"
        low, high = (np.maximum(band, drawn.floor) for band in (drawn.lower, drawn.upper))
        axes.fill_between(drawn.grid, low, high, color=colour, alpha=0.25, linewidth=0, label=label)
    axes.plot(drawn.grid, np.where(drawn.curve >= drawn.floor, drawn.curve, np.nan), color=colour, linewidth=1.4)
    if drawn.floor > 0:
        axes.set_yscale("log")
        axes.set_ylim(bottom=drawn.floor)
    if known is not None and estimate.num_probes and len(known):
        label = "largest eigenvalue" if len(known) == 1 else f"{len(known)} largest eigenvalues"
        heights = np.zeros(len(known))
        axes.plot(
            *(known, heights, "|"), color=INK, markersize=9, transform=axes.get_xaxis_transform(), clip_on=False,
            label=label,
        )  # fmt: skip
    ticks = _symmetric_ticks(drawn) if drawn.edge > 0 else []
    is_symmetric = sum(drawn.grid.min() <= tick <= drawn.grid.max() for tick in ticks) > 1
    if is_symmetric:
        axes.set_xscale("symlog", linthresh=drawn.edge)
        axes.set_xlim(float(drawn.grid.min()), float(drawn.grid.max()))
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("eigenvalue (symmetric logarithmic scale)" if is_symmetric else "eigenvalue", fontsize=9, color=INK)
    axes.set_ylabel(drawn.label, fontsize=9, color=INK)
    dress(axes, f"density of {estimate.size:,} eigenvalues, {drawn.smoothing}")
    if estimate.num_probes:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


def _symmetric_ticks(drawn: DrawnDensity) -> list[float]:
    """Zero, and on both sides as many powers of ten as are read at a glance."""
    sides = {-1: -float(drawn.grid.min()), 1: float(drawn.grid.max())}
    last = ceil(log10(drawn.edge))
    powers = {sign: np.arange(floor(log10(side)), last - 1, -1) for sign, side in sides.items() if side > drawn.edge}
    every = max(1, ceil(sum(map(len, powers.values())) / _NUM_TICKS))
    ticks = {0.0}
    for sign, exponents in powers.items():
        ticks.update(sign * 10.0 ** exponents[::every].astype(float))
    return sorted(ticks)


def _draw_network(axes: Axes, network: NetworkCurvature, title: str) -> None:
    for part in reversed(network.parts):
        _draw_part(axes, part, network.has_ranks)
    loss = network["loss"].measurement
    cut = loss.threshold / loss.scale if loss.scale > 0 else 0.0
    zero = axes.axhspan(FLOOR, cut, facecolor=SHADE, edgecolor=SHADE, zorder=0, label="counted as zero")
    axes.set_yscale("log")
    axes.set_ylim(FLOOR, 4.0)
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=8))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0, network.num_parameters)
    axes.set_xlabel(r"index $i$ of the eigenvalue, largest first", fontsize=9, color=INK)
    dress(axes, title)
    patch = Patch(facecolor=zero.get_facecolor(), edgecolor=FAINT, linewidth=0.6, label=zero.get_label())
    legend_below(axes, [*(line for line in axes.lines if not str(line.get_label()).startswith("_")), patch])


def _draw_part(axes: Axes, part: PartCurvature, has_ranks: bool) -> None:
    scale = part.measurement.scale or 1.0
    magnitudes = np.sort(np.abs(part.spectrum.eigenvalues))[::-1] / scale
    colour = HESSIAN_COLOURS[part.part]
    axes.plot(
        np.arange(1, magnitudes.size + 1),
        np.where(magnitudes > FLOOR, magnitudes, np.nan),
        color=colour,
        linewidth=1.6,
        label=_label(part) if has_ranks else f"${HESSIAN_SYMBOLS[part.part]}$  ({_NAMES[part.part]})",
    )
    if part.prediction is not None:
        axes.axvline(part.prediction.value, color=colour, linestyle=(0, (4, 3)), linewidth=1.0, alpha=0.9)


def _label(part: PartCurvature) -> str:
    """The symbol, the rank and, where there is one, the predicted rank with its kind."""
    rank = f"${HESSIAN_SYMBOLS[part.part]}$  rank {part.rank:,}"
    if part.certificate is not None:
        rank += " (certified)"
    if part.prediction is None:
        return rank
    return f"{rank}   (dashed: {part.prediction.kind_text} {part.prediction.value:,})"
