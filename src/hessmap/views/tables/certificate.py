"""A certificate, or its verification, as a sentence and a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hessmap.views.tables.contents import new_table

if TYPE_CHECKING:
    from hessmap.certificates import Certificate, Verification


def certificate_view(certificate: Certificate) -> RenderableType:
    """Show a certificate: the bound in one sentence, the held-out bound, the numbers, then the assumptions.

    Args:
        certificate: The certificate.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
    before, bound, after = promise(certificate)
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
    heads = [(head, lines, styles.get(head, "")) for head, lines in remarks(certificate).items() if head != "Verdict"]
    return _page(text, numbers(certificate), heads)


def promise(certificate: Certificate) -> tuple[str, str, str]:
    """What is promised: the words before the bound, the bound, the words behind it."""
    from hessmap.certificates import bounded_loss

    before, _, after = bounded_loss(certificate.loss).promise.partition("{bound}")
    return f"the stochastic network {before}", _rate(certificate.bound, certificate), after


def remarks(certificate: Certificate) -> dict[str, tuple[str, ...]]:
    """What a reader must know besides the numbers, under its heading."""
    return {
        "Verdict": (certificate.verdict,) if certificate.verdict else (),
        "Parts of the samples": certificate.parts,
        "Assumed": certificate.assumptions,
        "Notes": (*certificate.notes, *_trade(certificate)),
        "Doubts": certificate.doubts,
    }


def _rate(bound: float, certificate: Certificate) -> str:
    return f"{bound:.4f}" if certificate.loss == "squared" else f"{bound:.2%}"


def _trade(certificate: Certificate) -> tuple[str, ...]:
    """That a fit gives errors for divergence, which only the default objective does to the end."""
    if certificate.posterior_kind == "prior" or certificate.settings.get("objective") != "bound":
        return ()
    words = "the fit trades the network's own error for the promise; objective 'balanced' or 'pinsker' keeps more of it"
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
    return _page(verdict, rows, (*heads, ("Doubts", found.doubts, "yellow")))


def _page(sentence: Text, rows: list[tuple[str, str]], heads: Iterable[tuple[str, tuple[str, ...], str]]) -> Group:
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


def numbers(certificate: Certificate) -> list[tuple[str, str]]:
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
