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
    """The promise in one sentence, the numbers behind it, then what it assumes and what speaks against it."""
    promise = Text.assemble(
        "With confidence ",
        (f"{certificate.confidence:.1%}", "bold"),
        " the stochastic network errs on at most ",
        (f"{certificate.bound:.1%}", "bold green" if certificate.bound < 0.5 else "bold yellow"),
        " of unseen data.",
    )
    notes = (("Assumed", certificate.assumptions, ""), ("Notes", certificate.notes, ""))
    return _page(promise, _numbers(certificate), (*notes, ("Doubts", certificate.doubts, "yellow")))


def verification_view(verification: Verification) -> RenderableType:
    """The verdict in one sentence, the verifier's own numbers, then what speaks against the certificate."""
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
            (f"draws of {found.draws}, seed", f"{found.num_draws:,}, {found.seed}"),
        ]
    if found.test_error is not None:
        rows.append(("mean weights: error on test data", f"{found.test_error:.4f}"))
    unchecked = tuple(f"{name.replace('_', ' ')} is stated, and was not recomputed" for name in found.unchecked)
    heads = (("Reasons", found.reasons, "red"), ("Assumed", found.assumptions, ""), ("Not checked", unchecked, ""))
    return _page(verdict, rows, (*heads, ("Doubts", found.doubts, "yellow")))


def _page(sentence: Text, rows: list[tuple[str, str]], heads: Iterable[tuple[str, tuple[str, ...], str]]) -> Group:
    parts: list[RenderableType] = [Padding(sentence, (0, 0, 1, 0))]
    if rows:
        table = new_table()
        table.add_column("")
        table.add_column("", justify="right")
        for label, value in rows:
            table.add_row(label, value)
        parts.append(Padding(table, (0, 0, 1, 0)))
    for head, lines, style in heads:
        if lines:
            parts.append(Text(head, style="bold"))
            parts += [Padding(Text(line, style=style), (0, 0, 0, 2)) for line in lines]
    return Group(*parts)


def _numbers(certificate: Certificate) -> list[tuple[str, str]]:
    rows = [
        ("stochastic network: error on the samples, at most", f"{certificate.sampled_error_bound:.4f}"),
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
