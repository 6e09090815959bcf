"""Figures of what curvature is used for: costs of compression, losses on lines and planes, projected weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessmap.errors import require
from hessmap.records import CompressionPlan, CurvatureProjection, LossPlane, PruningPlan
from hessmap.views.plots.style import BAR_COLOURS, FAINT, INK, dress, legend_below, literal, marker, new_figure
from hessmap.views.plots.style import series_colour as colour

_LEVELS = 12


def compression_costs_figure(plan: CompressionPlan) -> Figure:
    """Draw predicted against measured increases of the loss, one point per layer and bit width.

    Args:
        plan: The plan.

    Returns:
        Figure: A matplotlib figure.
    """
    points = {
        f"{width} bits": [
            (cost.predicted_increase, cost.measured_increase)
            for layer in plan.layers
            for cost in layer.costs
            if cost.bits == width and cost.measured_increase is not None
        ]
        for width in plan.bits
    }
    return _scatter(points, f"cost of rounding one layer (risk {plan.risk:.3g})")


def compression_bits_figure(plan: CompressionPlan) -> Figure:
    """Draw the bit width of every layer as bars.

    Args:
        plan: The plan.

    Returns:
        Figure: A matplotlib figure.
    """
    figure = new_figure(width=6.4, height=1.2 + 0.22 * len(plan.layers))
    axes = figure.subplots()
    places = np.arange(len(plan.layers))
    axes.barh(places, [layer.bits for layer in plan.layers], color=BAR_COLOURS[1], height=0.7)
    axes.set_yticks(places, [literal(layer.name) for layer in plan.layers], fontsize=7)
    axes.invert_yaxis()
    axes.axvline(plan.mean_bits, color=FAINT, linestyle="--", linewidth=1)
    dress(axes, f"bits per weight; the dashed line is the budget of {plan.mean_bits:g} on average")
    axes.set_xlabel("bits", fontsize=9, color=INK)
    return figure


def pruning_costs_figure(plan: PruningPlan) -> Figure:
    """Draw predicted against measured increases of the loss, one point per layer.

    Args:
        plan: The plan.

    Returns:
        Figure: A matplotlib figure.
    """
    points = [
        (layer.predicted_increase, layer.measured_increase)
        for layer in plan.layers
        if layer.measured_increase is not None
    ]
    return _scatter({plan.method.upper(): points}, f"cost of pruning one layer (risk {plan.risk:.3g})")


def _scatter(points: dict[str, list[tuple[float, float]]], title: str) -> Figure:
    numbers = [number for pairs in points.values() for pair in pairs for number in pair]
    require(bool(numbers), "the figure needs measured costs", "measure=False was passed")
    figure = new_figure(width=5.6, height=5.0)
    axes = figure.subplots()
    smallest = min((abs(number) for number in numbers if number), default=1.0)
    has_negative = min(numbers) <= 0
    for place, (label, pairs) in enumerate(points.items()):
        predicted, measured = zip(*pairs, strict=True) if pairs else ((), ())
        axes.plot(predicted, measured, marker(place), color=colour(place), label=label, markersize=5, alpha=0.8)
    ends = [min(numbers), max(numbers)]
    axes.plot(ends, ends, color=FAINT, linewidth=0.8, zorder=0)
    for scale in (axes.set_xscale, axes.set_yscale):
        if has_negative:
            scale("symlog", linthresh=max(smallest, 1e-3 * max(map(abs, ends))))
        else:
            scale("log")
    dress(axes, title)
    axes.set_xlabel("predicted increase of the loss", fontsize=9, color=INK)
    axes.set_ylabel("measured increase of the loss", fontsize=9, color=INK)
    axes.legend(frameon=False, fontsize=8)
    return figure


def loss_plane_figure(plane: LossPlane) -> Figure:
    """Draw the loss on a line next to its quadratic model, or contours of both on a plane.

    Args:
        plane: The loss on a line or plane.

    Returns:
        Figure: A matplotlib figure.
    """
    return _line_figure(plane) if plane.loss.ndim == 1 else _plane_figure(plane)


def _line_figure(plane: LossPlane) -> Figure:
    figure = new_figure(width=6.0, height=3.8)
    axes = figure.subplots()
    (positions,) = plane.coordinates
    axes.plot(positions, plane.loss, color=colour(0), label="loss")
    top = float(np.nanmax(plane.loss[np.isfinite(plane.loss)], initial=-np.inf))
    bottom = float(np.nanmin(plane.loss[np.isfinite(plane.loss)], initial=np.inf))
    if plane.quadratic is not None:
        axes.plot(positions, plane.quadratic, "--", color=colour(1), label="quadratic model at 0")
    if plane.barrier is not None:
        barrier = plane.barrier
        axes.plot([0, 1], [barrier.start, barrier.end], ":", color=FAINT, label="straight line between both models")
        axes.axvline(barrier.position, color=FAINT, linewidth=0.8)
    margin = 0.3 * (top - bottom) or 1.0
    axes.set_ylim(bottom - margin, top + margin)
    dress(axes, _title(plane))
    axes.set_xlabel(plane.labels[0], fontsize=9, color=INK)
    axes.set_ylabel("loss", fontsize=9, color=INK)
    legend_below(axes, num_columns=3)
    return figure


def _plane_figure(plane: LossPlane) -> Figure:
    figure = new_figure(width=6.0, height=5.4)
    axes = figure.subplots()
    finite = np.where(np.isfinite(plane.loss), plane.loss, np.nan)
    levels = _contour_levels(finite)
    filled = axes.contourf(*plane.coordinates, finite.T, levels=levels, cmap="viridis", extend="both")
    figure.colorbar(filled, ax=axes, label="loss", format="%.3g")
    handles = []
    if plane.quadratic is not None:
        axes.contour(
            *plane.coordinates, plane.quadratic.T, levels=levels, colors="white", linestyles="--", linewidths=0.8
        )
        handles = [Line2D([], [], color=FAINT, linestyle="--", label="contours of the quadratic model, same levels")]
    corners = ((0, 0), (1, 0), (0, 1)) if plane.directions == "models" else ((0, 0),)
    for x, y in corners:
        axes.plot([x], [y], "o", color="white", markeredgecolor=INK, markersize=6)
    dress(axes, _title(plane))
    axes.grid(visible=False)
    axes.set_xlabel(plane.labels[0], fontsize=9, color=INK)
    axes.set_ylabel(plane.labels[1], fontsize=9, color=INK)
    legend_below(axes, handles)
    return figure


def _contour_levels(loss: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Sequence[float]:
    """Levels at quantiles of the loss, so that the valley is resolved where the loss explodes at the edge."""
    known = loss[np.isfinite(loss)]
    levels = np.unique(np.quantile(known, np.linspace(0, 1, _LEVELS))) if known.size else np.array([0.0])
    return list(levels) if len(levels) > 1 else [levels[0], levels[0] + 1.0]


def _title(plane: LossPlane) -> str:
    if plane.barrier is not None:
        return f"barrier {plane.barrier.height:.3g} at {plane.barrier.position:.2f}"
    if plane.explained is None:
        return f"loss, {plane.directions} directions"
    return f"the quadratic model explains {100 * plane.explained:.1f} % of the variance"


def projection_figure(found: CurvatureProjection) -> Figure:
    """Draw how curvature and squared weights add up over the components, largest eigenvalue first.

    Args:
        found: The projection.

    Returns:
        Figure: A matplotlib figure.
    """
    figure = new_figure(width=6.0, height=3.8)
    axes = figure.subplots()
    _draw_sums(axes, found)
    dress(axes, f"layer {literal(found.layer)}: {found.num_kept} of {found.num_components} components are kept")
    axes.set_xlabel("components, largest eigenvalue first", fontsize=9, color=INK)
    axes.set_ylabel("share of the sum", fontsize=9, color=INK)
    legend_below(axes, num_columns=3)
    return figure


def _draw_sums(axes: Axes, found: CurvatureProjection) -> None:
    numbers = np.arange(1, found.num_components + 1)
    for place, (label, values) in enumerate(
        {"eigenvalues": found.eigenvalues, "squared components of the weights": found.components**2}.items()
    ):
        total = values.sum()
        axes.plot(numbers, np.cumsum(values) / total if total else values, color=colour(place), label=label)
    axes.axvline(found.num_kept, color=FAINT, linestyle="--", linewidth=1, label="kept to the left")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
