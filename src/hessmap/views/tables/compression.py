"""A compression plan as one table: predicted beside measured costs of every layer."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hessmap.records import CompressionPlan
from hessmap.views.tables.contents import FittingTable, Table


def compression_view(plan: CompressionPlan) -> RenderableType:
    """Show a compression plan: its costs, then one row per layer.

    Args:
        plan: The plan.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
    heads, rows = plan.table()
    lines = tuple((row[0], f"{row[1]:,}", str(row[2]), *(_cost(value) for value in row[3:])) for row in rows)
    table = Table(heads, lines, (False, *[True] * (len(heads) - 1)))
    return Padding(Group(Text(summary_line(plan)), Padding(FittingTable(table), (1, 0, 0, 0))), (1, 0, 0, 0))


def summary_line(plan: CompressionPlan) -> str:
    """Mean bits, predicted and measured increase of the plan, and that of a single bit width."""
    text = f"{plan.used_mean_bits:.3g} bits per weight (budget {plan.mean_bits:g}), loss {plan.risk:.4g}. "
    text += f"Increase: predicted {plan.joint_increase:.3g}"
    text += f" ({plan.separate_increase:.3g} without interactions between layers)"
    if plan.measured_increase is not None:
        text += f", measured {plan.measured_increase:.3g}"
    if plan.uniform_measured_increase is not None:
        text += f"; {plan.uniform_bits} bits everywhere: {plan.uniform_measured_increase:.3g}"
    return f"{text}."


def _cost(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"
