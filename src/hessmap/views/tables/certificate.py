"""A certificate as a table and a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hessmap.views.tables.contents import new_table

if TYPE_CHECKING:
    from hessmap.certificates import Certificate


def certificate_view(certificate: Certificate) -> RenderableType:
    """The promise in one sentence, the numbers behind it, then what it assumes and what speaks against it."""
    promise = Text.assemble(
        "With confidence ",
        (f"{certificate.confidence:.1%}", "bold"),
        " the stochastic network errs on at most ",
        (f"{certificate.bound:.1%}", "bold green" if certificate.bound < 0.5 else "bold yellow"),
        " of unseen data.",
    )
    table = new_table()
    table.add_column("")
    table.add_column("", justify="right")
    for label, value in _numbers(certificate):
        table.add_row(label, value)
    parts: list[RenderableType] = [Padding(promise, (0, 0, 1, 0)), Padding(table, (0, 0, 1, 0))]
    for head, lines, style in (("Assumed", certificate.assumptions, ""), ("Doubts", certificate.doubts, "yellow")):
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
        ("mean weights: error on the samples", f"{certificate.training_error:.4f}"),
    ]
    if certificate.test_error is not None:
        rows.append(("mean weights: error on test data", f"{certificate.test_error:.4f}"))
    if certificate.stochastic_test_error is not None:
        rows.append(("stochastic network: error on test data", f"{certificate.stochastic_test_error:.4f}"))
    return [*rows, ("fit", f"{certificate.ending}, {certificate.seconds:.1f} s")]
