"""Figures of what curvature is used for.

Costs of compression, losses on lines and planes, projected weights, certificates, the next step of an optimiser; the
function of a network, its representations layer by layer, and the plane as a classifier divides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from hessmap.errors import require
from hessmap.records import (
    BottleneckView,
    ClassRegions,
    CompressionPlan,
    CurvatureProjection,
    LossPlane,
    PruningPlan,
    StepReport,
)
from hessmap.views.plots.style import (
    BAR_COLOURS,
    FAINT,
    INK,
    PAPER,
    SERIES_COLOURS,
    dress,
    legend_below,
    literal,
    marker,
    new_figure,
)
from hessmap.views.plots.style import series_colour as colour

if TYPE_CHECKING:
    from hessmap.certificates import Certificate


_LEVELS = 12
_PROMISED = "#c9d6df"
_ROOM = 1.18  # of the axis behind the largest number
_MOST_LAYERS = 30
Floats = NDArray[np.float64]
# Okabe and Ito, pale for regions and full for samples.
_CLASS_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8a8a8a")


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
    dress(axes, _plane_title(plane))
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
    dress(axes, _plane_title(plane))
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


def _plane_title(plane: LossPlane) -> str:
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


def gauge_figure(certificate: Certificate) -> Figure:
    """Draw the bound as a bar, errors on certified samples and test data as marks, the held-out bound as a line.

    Args:
        certificate: The certificate.

    Returns:
        Figure: A matplotlib figure.
    """
    figure = new_figure(7.2, 2.6)
    axes = figure.subplots()
    marks = error_marks(certificate)
    axes.set_xlim(0, gauge_end(certificate))
    axes.barh([0], [certificate.bound], height=0.5, color=_PROMISED, zorder=1)
    is_near = (certificate.held_out_bound or 0.0) > 0.5 * certificate.bound  # the line would cross the words
    place = (0.0, "left") if is_near else (certificate.bound, "right")
    words = f" bound {certificate.bound:.4f} "
    axes.text(place[0], 0.3, words, fontsize=9, color=INK, ha=place[1], va="bottom")
    if certificate.held_out_bound is not None:
        axes.axvline(certificate.held_out_bound, color=INK, linestyle="--", linewidth=1.2, label=_held_out(certificate))
    for rank, (label, value) in enumerate(marks):
        height = 0.12 - 0.24 * (rank % 2)
        named = f"{label} {value:.4f}"
        axes.plot([value], [height], "o", color=SERIES_COLOURS[rank], markersize=7, label=named, zorder=3)
    _finish_gauge(axes, certificate)
    return figure


def gauge_end(certificate: Certificate) -> float:
    """Where the axis ends: behind the largest number, at most at 1."""
    measured = (value for _, value in error_marks(certificate))
    largest = max(certificate.bound, certificate.held_out_bound or 0.0, *measured)
    return min(1.0, _ROOM * largest) if largest > 0 else 1.0


def error_marks(certificate: Certificate) -> list[tuple[str, float]]:
    """The errors that were measured, by what erred and where."""
    values = {
        "stochastic network, certified samples": certificate.sampled_error,
        "mean weights, certified samples": certificate.training_error,
        "stochastic network, test": certificate.stochastic_test_error,
        "mean weights, test": certificate.test_error,
    }
    return [(label, value) for label, value in values.items() if value is not None]


def _held_out(certificate: Certificate) -> str:
    return f"held-out bound of the prior's mean network {certificate.held_out_bound:.4f}"


def _finish_gauge(axes: Axes, certificate: Certificate) -> None:
    what = "squared error, clipped at 1" if certificate.loss == "squared" else "error"
    dress(axes, f"Certified with confidence {certificate.confidence:.1%}, KL {certificate.kl:,.1f}")
    axes.set_xlabel(f"{what} (marks are offset vertically to avoid overlap)", fontsize=9, color=INK)
    axes.set_yticks([])
    axes.set_ylim(-0.4, 0.62)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=2, frameon=False, labelcolor=INK)
    axes.spines["left"].set_color(FAINT)


def step_figure(report: StepReport) -> Figure:
    """Draw the quadratic model of the loss over the learning rate, with what was measured, and u^T H u by layers.

    Args:
        report: The report of the step, with directional sharpness or layer terms.

    Returns:
        Figure: one or two panels.

    Raises:
        InvalidInput: If the report has neither.
    """
    has_model = report.predicted_change is not None and report.learning_rate is not None
    terms = report.layer_terms
    must, remedy = (
        "the figure of a step needs quantities along the step",
        "Ask for directional_sharpness or layer_terms",
    )
    require(has_model or terms is not None, must, "the report has none", remedy)
    count = int(has_model) + int(terms is not None)
    figure = new_figure(4.8 * count, 3.6)
    if has_model:
        _draw_step_model(figure.add_subplot(1, count, 1), report)
    if terms is not None:
        axes = figure.add_subplot(1, count, count)
        order = np.argsort(-np.abs(terms.terms))[:_MOST_LAYERS]
        order = np.sort(order)
        places = np.arange(len(order))
        if terms.pairs is not None:
            own = np.diag(terms.pairs)[order]
            axes.barh(places - 0.2, own, 0.4, color=SERIES_COLOURS[0], label="the layer alone")
            others = terms.terms[order] - own
            axes.barh(places + 0.2, others, 0.4, color=SERIES_COLOURS[1], label="its half of the pairs")
        else:
            axes.barh(places, terms.terms[order], 0.6, color=SERIES_COLOURS[0])
        axes.set_yticks(places, [literal(terms.names[place]) for place in order], fontsize=8)
        axes.invert_yaxis()
        axes.axvline(0, color=FAINT, linewidth=0.8)
        axes.ticklabel_format(axis="x", style="sci", scilimits=(-2, 3))
        axes.set_xlabel("part of $u^T H u$", fontsize=9, color=INK)
        dress(axes, "Curvature along the step, by layer")
        legend_below(axes, num_columns=2)
    return figure


def _draw_step_model(axes: Axes, report: StepReport) -> None:
    first, predicted, rate = report.first_order_change, report.predicted_change, report.learning_rate
    assert first is not None
    assert predicted is not None
    assert rate is not None
    critical = report.critical_learning_rate
    end = 1.25 * max(1.6, critical.value / rate if critical is not None else 0.0)
    multiples = np.linspace(0, end, 200)
    model = first.value * multiples + (predicted.value - first.value) * multiples**2
    axes.plot(rate * multiples, report.risk + model, color=INK, linewidth=1.3, label="quadratic model")
    axes.axhline(report.risk, color=FAINT, linewidth=0.8)
    if report.measured_change is not None:
        after = report.risk + report.measured_change.value
        axes.plot([rate], [after], "o", color=SERIES_COLOURS[1], label=f"measured at lr {rate:g}")
    if critical is not None and critical.value > 0:
        low, high = critical.value - critical.error, critical.value + critical.error
        axes.axvspan(low, high, color=SERIES_COLOURS[0], alpha=0.25, linewidth=0, label="critical learning rate")
    axes.set_xlabel("learning rate", fontsize=9, color=INK)
    axes.set_ylabel("loss after the step", fontsize=9, color=INK)
    dress(axes, f"The next step of {literal(report.optimizer)}")
    legend_below(axes, num_columns=2)


def representations_figure(view: BottleneckView, count: int = 10) -> Figure:
    """Draw three panels over depth: singular values of representations, impact of the nonlinearity, weights.

    Args:
        view: The layers of the network.
        count: Number of centred singular values of a representation, each over the largest of its layer. Defaults to
            10.

    Returns:
        Figure: A matplotlib figure.
    """
    figure = new_figure(width=10.5, height=3.4)
    values, impact, weights = figure.subplots(1, 3)
    depths = range(1, len(view.layers) + 1)
    _draw_curves(values, [relative_values(layer.centred_singular_values) for layer in view.layers], count)
    values.set_yscale("log")
    values.set_ylim(1e-4, 1.5)
    values.axhline(view.relative_tolerance, color=FAINT, linestyle="--", linewidth=1.0)
    dress(values, f"singular values of the outputs{_narrowest(view.bottlenecks)}")
    impacts = [np.nan if layer.nonlinearity is None else layer.nonlinearity for layer in view.layers]
    impact.plot(depths, impacts, "o-", color=BAR_COLOURS[1], linewidth=1.4, markersize=4)
    impact.set_ylim(0, 1.1 * max(np.nanmax([*impacts, 0.0]), 0.05))
    dress(impact, "relative change by the activation")
    _draw_curves(weights, [layer.weight_singular_values for layer in view.layers], count)
    dress(weights, "singular values of the weights")
    for axes in (values, impact, weights):
        axes.set_xlabel("layer", fontsize=9, color=INK)
        every = max(1, len(view.layers) // 12)
        axes.set_xticks(list(depths)[::every], [literal(layer.name) for layer in view.layers][::every])
    return figure


def _draw_curves(axes: Axes, values: list[Floats], count: int) -> None:
    """The k-th value of every layer, one curve per k, darkest first."""
    table = np.full((len(values), count), np.nan)
    for place, row in enumerate(values):
        table[place, : min(count, len(row))] = row[:count]
    for place in range(count):
        shade = 1.0 - 0.8 * place / count
        (line,) = axes.plot(range(1, len(values) + 1), table[:, place], "o-", color=BAR_COLOURS[1], linewidth=1.1)
        line.set(alpha=shade, markersize=3)


def _narrowest(names: tuple[str, ...]) -> str:
    if not names:
        return ""
    few = ", ".join(names) if len(names) <= 4 else f"{names[0]} .. {names[-1]} ({len(names)})"
    return f"; narrowest: {'layer' if len(names) == 1 else 'layers'} {literal(few)}"


def relative_values(values: Floats) -> Floats:
    """Over the largest, which is the first; zeros stay as they are."""
    return values / values[0] if values.size and values[0] > 0 else values


def class_regions_figure(
    regions: ClassRegions, points: Floats | None = None, labels: NDArray[np.int64] | None = None
) -> Figure:
    """Draw the regions of the classes in pale colours, boundaries as lines, points of three classes as rings.

    Args:
        regions: The regions.
        points: Samples to draw as dots, two coordinates each. Default: none.
        labels: Their classes. Default: none.

    Returns:
        Figure: A matplotlib figure.
    """
    left, right, bottom, top = regions.box
    height = float(np.clip(4.6 * (top - bottom) / (right - left), 2.4, 7.0))
    figure = new_figure(width=5.2, height=height + 0.5)
    axes = figure.subplots()
    count = int(regions.labels.max()) + 1
    colours = [_class_colour(label) for label in range(count)]
    axes.imshow(
        regions.labels, origin="lower", extent=(left, right, bottom, top), cmap=ListedColormap(colours), alpha=0.25,
        vmin=-0.5, vmax=count - 0.5, interpolation="nearest", aspect="equal",
    )  # fmt: skip
    axes.add_collection(LineCollection(list(regions.boundaries), colors=INK, linewidths=1.0))
    if points is not None:
        classes = np.zeros(len(points), dtype=np.int64) if labels is None else labels
        axes.scatter(points[:, 0], points[:, 1], s=7, c=[_class_colour(label) for label in classes], zorder=3)
    across, up = regions.tripoints.T
    axes.scatter(across, up, s=70, facecolors="none", edgecolors=INK, linewidths=1.8, zorder=4)
    grids = " and ".join(str(size) for size in regions.grid_sizes[-2:])
    doubt = f"grids of {grids} agree" if regions.agrees else f"grids disagree: {', '.join(map(str, regions.counts))}"
    word = "tripoint" if regions.num_tripoints == 1 else "tripoints"
    dress(axes, f"{regions.num_tripoints} {word} ({doubt})")
    axes.grid(visible=False)
    axes.set_facecolor(PAPER)
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    return figure


def _class_colour(label: int) -> str:
    return _CLASS_COLOURS[label % len(_CLASS_COLOURS)]
