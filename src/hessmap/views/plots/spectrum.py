"""Spectra: of the three Hessians with the predicted ranks drawn in, of one matrix, and as a density."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

from hessmap.results import DensityCurve, DensityEstimate, Spectrum
from hessmap.results.maps import HESSIAN_SYMBOLS, CurvatureMap, NetworkCurvature, PartCurvature, whole_of
from hessmap.views.plots.style import FAINT, HESSIAN_COLOURS, INK, SHADE, dress, legend_below, literal, new_figure

# Zeros of a float64 eigensolver lie near 1e-16 of the norm; what is below this floor is not drawn.
FLOOR = 1e-19
_MAGNITUDE = r"$|\lambda_i|\;/\;\|H_L\|$"


def spectrum_figure(curvature_map: CurvatureMap) -> Figure:
    """|eigenvalue| / ||H_L|| against its index, one panel per network; dashed: the predicted ranks. Of estimates, which
    know no single eigenvalue but the largest ones, the density."""
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
        return density_figure(whole_of(network).density)
    figure = new_figure(width=4.6, height=4.5)
    axes = figure.subplots()
    _draw_network(axes, network, title="")
    axes.set_ylabel(_MAGNITUDE, fontsize=10, color=INK)
    return figure


def eigenvalues_figure(spectrum: Spectrum) -> Figure:
    """The magnitudes of the eigenvalues against their index, largest first; negative ones stand out.

    What lies within the error of the eigenvalues (of a float64 eigensolver, where it is not known) has no sign.
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
    """The density of the eigenvalues of the loss Hessian."""
    return density_figure(whole_of(curvature_map.network).density)


def density_figure(estimate: DensityEstimate | DensityCurve) -> Figure:
    """The density of the eigenvalues over its grid, with its confidence band over the probes."""
    figure = new_figure(width=5.4, height=3.7)
    axes = figure.subplots()
    colour = HESSIAN_COLOURS["outer_product"]
    visible = estimate.density.max(initial=0.0) * 1e-6  # what lies below is smoothing, not spectrum
    low, high = (np.maximum(band, visible) for band in (estimate.lower, estimate.upper))
    if estimate.num_probes:
        label = f"{estimate.confidence:.0%} band over {estimate.num_probes} probes"
        axes.fill_between(estimate.grid, low, high, color=colour, alpha=0.25, linewidth=0, label=label)
    density = np.where(estimate.density >= visible, estimate.density, np.nan)
    axes.plot(estimate.grid, density, color=colour, linewidth=1.4)
    if visible > 0:
        axes.set_yscale("log")
    axes.set_xlabel("eigenvalue", fontsize=9, color=INK)
    axes.set_ylabel("density", fontsize=9, color=INK)
    dress(axes, f"density of {estimate.size:,} eigenvalues, smoothed by {estimate.width:.2g}")
    if estimate.num_probes:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


def _draw_network(axes: Axes, network: NetworkCurvature, title: str) -> None:
    for part in ("loss", "outer_product", "functional"):
        _draw_part(axes, network[part])
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


def _draw_part(axes: Axes, part: PartCurvature) -> None:
    scale = part.measurement.scale or 1.0
    magnitudes = np.sort(np.abs(part.spectrum.eigenvalues))[::-1] / scale
    colour = HESSIAN_COLOURS[part.part]
    axes.plot(
        np.arange(1, magnitudes.size + 1),
        np.where(magnitudes > FLOOR, magnitudes, np.nan),
        color=colour,
        linewidth=1.6,
        label=_label(part),
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
    word = "linear formula" if part.prediction.kind == "numerical" else part.prediction.truth
    return f"{rank}   (dashed: {word} {part.prediction.value:,})"
