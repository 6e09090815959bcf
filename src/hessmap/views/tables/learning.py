"""Learning coefficients for a terminal: the exact one beside what curvature says, the estimate with its checks."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hessmap.records import LearningCoefficient, LearningCoefficientEstimate
from hessmap.views.tables.contents import FittingTable, Table, new_table, number

_STYLES = {"passed": "", "failed": "bold", "inconclusive": "italic", "not run": "dim"}


def coefficient_view(found: LearningCoefficient, title: str = "") -> RenderableType:
    """The coefficient between half the rank of the Hessian and half the parameters, with its kind of truth."""
    where = "at these weights" if found.is_local else "at generic weights"
    counts = (
        ("learning coefficient", found.value),
        (f"half the rank of H_o {where}", found.hessian_rank / 2),
        ("half the parameters", found.num_parameters / 2),
    )
    shown = tuple((name, str(value) if value is found.value else "", f"{float(value):,.10g}") for name, value in counts)
    table = FittingTable(Table(("count", "value", "as a number"), shown, (False, True, True)))
    head = [Text(title, style="italic")] if title else []
    multiplicity = "not known" if found.multiplicity is None else f"{found.multiplicity:,}"
    lines = [f"multiplicity {multiplicity}, rank of the truth {found.rank:,}", f"{found.kind}: {found.reference}"]
    if found.kind == "conjecture":
        lines.append(f"proved: at least {found.lower_bound}, at most {found.value}")
    return Group(*head, table, *_lines(lines), Text("Assumed", style="bold"), *_lines(found.assumptions))


def estimate_view(found: LearningCoefficientEstimate, title: str = "") -> RenderableType:
    """The estimate and its verdict, the settings, and every check."""
    low, high = found.interval
    head = f"Learning coefficient {found.with_error} (95 %: {low:.3g} to {high:.3g}), {found.verdict}"
    table = new_table(title)
    table.add_column("check", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("what was seen")
    for check in found.checks:
        table.add_row(check.name, Text(check.outcome, style=_STYLES[check.outcome]), Text(check.sentence))
    return Group(Text(head, style="bold"), table, *_lines(_settings(found)))


def _settings(found: LearningCoefficientEstimate) -> list[str]:
    settings = found.settings
    batch = "all samples" if settings.batch_size is None else f"{settings.batch_size:,} samples"
    return [
        f"half the parameters is {found.num_parameters / 2:,g}; largest curvature met {number(found.sharpness)}",
        f"{settings.num_chains} chains of {settings.num_draws:,} draws after {settings.num_burn_in:,} steps, ended by "
        f"{found.stopped_by}; each step of {number(settings.step_size)} sees {batch}",
        f"n {settings.num_observations:,g}, beta {number(settings.inverse_temperature)}, localisation "
        f"{settings.localisation:g}, seed {settings.seed}",
    ]


def _lines(texts: tuple[str, ...] | list[str]) -> list[RenderableType]:
    return [Padding(Text(text), (0, 0, 0, 2)) for text in texts]
