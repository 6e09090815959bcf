"""Figure of an optimiser's step: the loss along it, and the curvature along it by layers."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from hessmap.errors import require
from hessmap.records import StepReport
from hessmap.views.plots.style import FAINT, INK, SERIES_COLOURS, dress, legend_below, literal, new_figure

_MOST_LAYERS = 30


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
        _draw_model(figure.add_subplot(1, count, 1), report)
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


def _draw_model(axes: object, report: StepReport) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
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
