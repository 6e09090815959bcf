"""The report of an optimiser's step as a sentence and a table."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hessmap.records import StepQuantity, StepReport
from hessmap.views.tables.contents import FittingTable, Table

_MEANINGS = {
    "sharpness": "largest eigenvalue of the loss Hessian",
    "preconditioned_sharpness": "largest eigenvalue of P^-1/2 H P^-1/2",
    "stability_threshold": "the step is unstable above it",
    "batch_sharpness": "g^T H g / g^T g of mini-batches",
    "gradient_noise_scale": "batch size at which noise and gradient are equal",
    "directional_sharpness": "u^T H u / u^T u along the step u",
    "first_order_change": "of the loss: g^T u",
    "predicted_change": "of the loss: g^T u + u^T H u / 2",
    "measured_change": "of the loss",
    "critical_learning_rate": "from it on, this step raises the loss",
}
_ERRORS = {
    "exact": "exact",
    "rounding": "rounding",
    "residual": "residual",
    "standard_error": "standard error",
    "bracket": "bracket",
}


def step_summary(report: StepReport) -> tuple[str, ...]:
    """Sentences about a step: each is true or absent.

    Args:
        report: The report of the step.

    Returns:
        Whether the step is stable, what it does to the loss, how far the learning rate is from raising it, and which
        layer has the largest part of the curvature along the step.
    """
    sentences = (_stability(report), _change(report), _critical(report), _layers(report))
    return tuple(text for text in sentences if text)


def _stability(report: StepReport) -> str:
    ratio, threshold = report.stability_ratio, report.stability_threshold
    if ratio is None or threshold is None:
        return (
            "" if report.stability_threshold is not None else f"No stability threshold is known for {report.optimizer}."
        )
    line = f"the stability threshold of {report.optimizer}, {report.threshold_formula} = {threshold.value:.6g}"
    if ratio < 1:
        return f"Stable: the preconditioned sharpness is {ratio:.1%} of {line}."
    return f"Unstable along the sharpest direction: the preconditioned sharpness is {ratio:.3g} times {line}."


def _change(report: StepReport) -> str:
    measured, predicted = report.measured_change, report.predicted_change
    if measured is None:
        return ""
    does = "lowers" if measured.value < 0 else "raises"
    text = f"The step {does} the loss {report.risk:.4g} by {abs(measured.value):.3g}"
    return f"{text}; the quadratic model predicts {predicted.value:+.3g}." if predicted is not None else f"{text}."


def _critical(report: StepReport) -> str:
    critical, rate = report.critical_learning_rate, report.learning_rate
    if critical is None or not rate:
        return ""
    if critical.value == 0:
        return "The step goes uphill at every learning rate."
    times = f"{critical.value / rate:.3g} times the present"
    return f"It raises the loss from a learning rate of {critical.with_error} on, {times}."


def _layers(report: StepReport) -> str:
    terms = report.layer_terms
    if terms is None or len(terms.names) < 2 or not terms.total > 0 or terms.terms.min() < 0:  # no shares
        return ""
    place = int(terms.terms.argmax())
    return f"Layer {terms.names[place]} has {terms.terms[place] / terms.total:.0%} of the curvature along the step."


def step_table(report: StepReport) -> Table:
    """Every quantity with its error, "–" where it is undefined.

    Args:
        report: The report of the step.

    Returns:
        Table: one line a quantity.
    """
    return Table(
        ("quantity", "value", "error", "kind of error", "meaning"),
        tuple(_line(name, getattr(report, name), meaning) for name, meaning in _MEANINGS.items()),
        (False, True, True, False, False),
        (True, False, False, False, False),
    )


def _line(name: str, found: StepQuantity | None, meaning: str) -> tuple[str, ...]:
    title = name.replace("_", " ")
    if found is None:
        return title, "–", "–", "undefined or not asked for", meaning
    kind = _ERRORS[found.error_kind] + ("" if found.converged else ", not converged")
    return title, f"{found.value:.6g}", f"{found.error:.2g}", kind, meaning


def step_view(report: StepReport) -> RenderableType:
    """Everything a terminal can show of a report.

    Args:
        report: The report of the step.

    Returns:
        A renderable of rich: sentences, the table, then notes.
    """
    rate = "" if report.learning_rate is None else f", learning rate {report.learning_rate:g}"
    head = Text.assemble(
        (f"{report.optimizer}{rate}", "bold"), f": loss {report.risk:.5g} on {report.num_samples:,} samples"
    )
    lines = [Text(f"- {text}") for text in (*step_summary(report), *report.notes)]
    work = Text(f"{report.num_products} Hessian products, {report.num_passes} evaluations of the loss", style="dim")
    table = Padding(FittingTable(step_table(report)), (1, 0, 0, 0))
    return Padding(Group(head, *lines, table, work), (1, 0, 0, 0))
