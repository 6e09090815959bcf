"""What curvature is used for as text and tables: optimiser steps, certificates, compression plans and loss planes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hessmap.records import CompressionPlan, LossPlane, StepQuantity, StepReport
from hessmap.views.tables.contents import FittingTable, Table, new_table

if TYPE_CHECKING:
    from hessmap.certificates import Certificate, Verification


_STEP_MEANINGS = {
    "sharpness": "largest eigenvalue of the loss Hessian",
    "preconditioned_sharpness": "largest eigenvalue of P^-1/2 H P^-1/2",
    "stability_threshold": "the step is unstable above it",
    "batch_sharpness": "g^T H g / g^T g of mini-batches",
    "gradient_noise_scale": "batch size at which noise and gradient are equal",
    "directional_sharpness": "u^T H u / u^T u along the step u",
    "first_order_change": "of the loss: g^T u",
    "predicted_change": "of the loss: g^T u + u^T H u / 2",
    "measured_change": "of the loss",
    "critical_learning_rate": "above it, this step raises the loss",
}
_STEP_ERRORS = {
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
    sentences = (_stability(report), _change(report), _critical(report), _largest_layer(report))
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


def _largest_layer(report: StepReport) -> str:
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
        tuple(_quantity_line(name, getattr(report, name), meaning) for name, meaning in _STEP_MEANINGS.items()),
        (False, True, True, False, False),
        (True, False, False, False, False),
    )


def _quantity_line(name: str, found: StepQuantity | None, meaning: str) -> tuple[str, ...]:
    title = name.replace("_", " ")
    if found is None:
        return title, "–", "–", "undefined or not requested", meaning
    kind = _STEP_ERRORS[found.error_kind] + ("" if found.converged else ", not converged")
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


def certificate_view(certificate: Certificate) -> RenderableType:
    """Show a certificate: the bound in one sentence, the held-out bound, the numbers, then the assumptions.

    Args:
        certificate: The certificate.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
    before, bound, after = certificate_promise(certificate)
    text = Text.assemble(
        "With confidence ",
        (f"{certificate.confidence:.1%}", "bold"),
        f" {before}",
        (bound, "bold green" if certificate.bound < 0.5 else "bold yellow"),
        f"{after}.",
    )
    if certificate.verdict and certificate.held_out_bound is not None:
        is_better = certificate.bound < certificate.held_out_bound
        text.append("\nBetter than a plain held-out bound: ")
        text.append("yes" if is_better else "no", "bold green" if is_better else "bold yellow")
        text.append(f"; {certificate.verdict}.")
    styles = {"Doubts": "yellow"}
    heads = [
        (head, lines, styles.get(head, ""))
        for head, lines in certificate_remarks(certificate).items()
        if head != "Verdict"
    ]
    return _certificate_page(text, certificate_numbers(certificate), heads)


def certificate_promise(certificate: Certificate) -> tuple[str, str, str]:
    """What is promised: the words before the bound, the bound, the words behind it."""
    from hessmap.certificates import bounded_loss

    before, _, after = bounded_loss(certificate.loss).promise.partition("{bound}")
    return f"the stochastic network {before}", _certified_rate(certificate.bound, certificate), after


def certificate_remarks(certificate: Certificate) -> dict[str, tuple[str, ...]]:
    """What a reader must know besides the numbers, under its heading."""
    return {
        "Verdict": (certificate.verdict,) if certificate.verdict else (),
        "Parts of the samples": certificate.parts,
        "Assumed": certificate.assumptions,
        "Notes": (*certificate.notes, *_trade(certificate)),
        "Doubts": certificate.doubts,
    }


def _certified_rate(bound: float, certificate: Certificate) -> str:
    return f"{bound:.4f}" if certificate.loss == "squared" else f"{bound:.2%}"


def _trade(certificate: Certificate) -> tuple[str, ...]:
    """That a fit gives errors for divergence, which only the default objective does to the end."""
    if certificate.posterior_kind == "prior" or certificate.settings.get("objective") != "bound":
        return ()
    words = (
        "the fit trades the network's own error for a tighter bound; objective 'balanced' or 'pinsker' keeps more of it"
    )
    return (words,)


def verification_view(verification: Verification) -> RenderableType:
    """Show a verification: its outcome in one sentence, the verifier's own numbers, then objections.

    Args:
        verification: The verification.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
    found, claimed = verification, verification.claimed_bound
    verdict = Text.assemble(
        "The certificate is ",
        (found.verdict, "bold green" if found else "bold red"),
        "." if claimed is None else f": it claims an error of at most {claimed:.1%} on unseen data.",
    )
    rows = []
    if found.bound is not None and found.confidence is not None:
        verdict.append(f" These draws give {found.bound:.1%}, with confidence {found.confidence:.1%}.")
        rows = [
            ("bound, from these draws", f"{found.bound:.4f}"),
            ("stochastic network: error on the samples, at most", f"{found.sampled_error_bound:.4f}"),
            ("divergence of posterior from prior", f"{found.kl:,.1f}"),
            ("samples, parameters", f"{found.num_samples:,}, {found.num_parameters:,}"),
            ("mean weights: error on the samples", f"{found.training_error:.4f}"),
            ("held-out bound, prior's mean network", f"{found.held_out_bound:.4f}"),
            (f"draws of {found.draws}, seed", f"{found.num_draws:,}, {found.seed}"),
        ]
    if found.test_error is not None:
        rows.append(("mean weights: error on test data", f"{found.test_error:.4f}"))
    unchecked = tuple(
        name if " " in name else f"{name.replace('_', ' ')} is stated, and was not recomputed"
        for name in found.unchecked
    )
    heads = (("Reasons", found.reasons, "red"), ("Assumed", found.assumptions, ""), ("Not checked", unchecked, ""))
    return _certificate_page(verdict, rows, (*heads, ("Doubts", found.doubts, "yellow")))


def _certificate_page(
    sentence: Text, rows: list[tuple[str, str]], heads: Iterable[tuple[str, tuple[str, ...], str]]
) -> Group:
    parts: list[RenderableType] = [Padding(sentence, (0, 0, 1, 0))]
    if rows:
        table = new_table()
        table.add_column("")
        table.add_column("", justify="right", overflow="fold")
        for label, value in rows:
            table.add_row(label, value)
        parts.append(Padding(table, (0, 0, 1, 0)))
    for head, lines, style in heads:
        if lines:
            parts.append(Text(head, style="bold"))
            parts += [Padding(Text(line, style=style), (0, 0, 0, 2)) for line in lines]
    return Group(*parts)


def certificate_numbers(certificate: Certificate) -> list[tuple[str, str]]:
    """Names and values behind the promise."""
    rows = [("bound", f"{certificate.bound:.4f} ({certificate.inequality})")]
    if certificate.held_out_bound is not None:
        rows.append(("held-out bound, prior's mean network", f"{certificate.held_out_bound:.4f}"))
    rows += [
        ("stochastic network: error on the samples", f"{certificate.sampled_error:.4f}"),
        ("the same, at most", f"{certificate.sampled_error_bound:.4f}"),
        ("gap between bound and that error", f"{certificate.gap:.4f}"),
        ("divergence of posterior from prior", f"{certificate.kl:,.1f}"),
        ("samples, parameters", f"{certificate.num_samples:,}, {certificate.num_parameters:,}"),
        ("basis", certificate.basis),
        ("standard deviation of the prior", f"{certificate.prior_variance**0.5:.4f} (j = {certificate.grid_index})"),
        (f"draws of {certificate.draws}", f"{certificate.num_draws:,}"),
        ("mean weights: error on the samples", f"{certificate.training_error:.4f}"),
    ]
    if certificate.test_error is not None:
        rows.append(("mean weights: error on test data", f"{certificate.test_error:.4f}"))
    if certificate.stochastic_test_error is not None:
        rows.append(("stochastic network: error on test data", f"{certificate.stochastic_test_error:.4f}"))
    return [*rows, ("fit", f"{certificate.ending}, {certificate.seconds:.1f} s")]


def compression_view(plan: CompressionPlan) -> RenderableType:
    """Show a compression plan: its costs, then one row per layer.

    Args:
        plan: The plan.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
    heads, rows = plan.table()
    lines = tuple((row[0], f"{row[1]:,}", str(row[2]), *(_cost_text(value) for value in row[3:])) for row in rows)
    table = Table(heads, lines, (False, *[True] * (len(heads) - 1)))
    return Padding(Group(Text(compression_summary(plan)), Padding(FittingTable(table), (1, 0, 0, 0))), (1, 0, 0, 0))


def compression_summary(plan: CompressionPlan) -> str:
    """Mean bits, predicted and measured increase of the plan, and that of a single bit width."""
    text = f"{plan.used_mean_bits:.3g} bits per weight (budget {plan.mean_bits:g}), loss {plan.risk:.4g}. "
    text += f"Increase: predicted {plan.joint_increase:.3g}"
    text += f" ({plan.separate_increase:.3g} without interactions between layers)"
    if plan.measured_increase is not None:
        text += f", measured {plan.measured_increase:.3g}"
    if plan.uniform_measured_increase is not None:
        text += f"; {plan.uniform_bits} bits everywhere: {plan.uniform_measured_increase:.3g}"
    return f"{text}."


def _cost_text(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"


def plane_view(plane: LossPlane) -> RenderableType:
    """Show a loss plane: one row per axis, then the findings.

    Args:
        plane: The loss on a line or plane.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
    lines = tuple(
        (label, f"{axis[0]:.4g} to {axis[-1]:.4g}", str(len(axis)), f"{slope:.3g}", f"{curvature:.3g}")
        for label, axis, slope, curvature in zip(
            plane.labels, plane.coordinates, plane.gradient, plane.curvature.diagonal(), strict=True
        )
    )
    heads = ("axis", "range", "points", "slope at 0", "curvature at 0")
    table = FittingTable(Table(heads, lines, (False, True, True, True, True)))
    return Padding(Group(table, *map(Text, plane_findings(plane))), (1, 0, 0, 0))


def plane_findings(plane: LossPlane) -> list[str]:
    """The numbers of a plane in sentences."""
    finite = plane.loss[np.isfinite(plane.loss)]
    found = []
    if finite.size:
        found.append(f"Loss {plane.risk:.4g} at the model, {finite.min():.4g} to {finite.max():.4g} on the grid.")
    if plane.explained is not None:
        found.append(f"The quadratic model explains {100 * plane.explained:.1f} % of the variance of the loss.")
    if plane.barrier is not None:
        barrier = plane.barrier
        found.append(
            f"Barrier {barrier.height:.4g} at {barrier.position:.3g} of the way (grid spacing {barrier.spacing:.3g}); "
            f"loss {barrier.start:.4g} and {barrier.end:.4g} at the ends."
        )
    if plane.quadratic is None:
        found.append("No quadratic model: buffers of the two models differ, and it describes parameters alone.")
    if plane.converged is False:
        found.append("The eigenvectors did not converge: the directions are not the sharpest ones.")
    if plane.num_not_finite:
        found.append(f"{plane.num_not_finite} points have a loss that is not finite.")
    return found
