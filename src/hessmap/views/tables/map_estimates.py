"""The map of a large network for a terminal: its spectrum in numbers, its layers, its verdicts."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hessmap.results.map_estimates import CurvatureEstimates
from hessmap.views.tables.contents import FittingTable, Table, number
from hessmap.views.tables.map import verdicts_view


def map_estimates_view(found: CurvatureEstimates) -> RenderableType:
    """Everything a terminal can show of estimates."""
    facts = (
        f"{found.num_parameters:,} parameters, {found.num_samples:,} samples, {found.loss} loss, "
        f"risk {number(found.risk)}, gradient norm {number(found.gradient_norm)}"
    )
    head = Text.assemble((found.description, "bold"), "\n", (facts, "dim"))
    reason = Text(f"Estimates from products, without ranks: {found.reason}.", style="yellow")
    values = ", ".join(number(value) for value in found.eigenpairs.eigenvalues)
    largest = Text(f"Largest eigenvalues of H_L: {values}")
    legend = "share of the trace of H_o, and of the squared norm of the sharpest direction of H_L"
    title = Text.assemble(("Layers", "bold"), "\n", (legend, "dim"))
    layers = Padding(Group(title, FittingTable(layer_estimates(found))), (1, 0, 0, 0))
    return Group(Padding(Group(head, reason, largest), (1, 0, 0, 0)), layers, verdicts_view(found.verdicts))


def layer_estimates(found: CurvatureEstimates) -> Table:
    """One row per layer."""
    lines = tuple(
        (
            layer.name,
            layer.shape,
            f"{layer.num_parameters:,}",
            f"{layer.curvature_share:.1%}" + (f" ± {layer.share_error:.1%}" if layer.share_error else ""),
            f"{layer.direction_share:.1%}",
        )
        for layer in found.layers
    )
    labels = ("layer", "shape", "parameters", "curvature", "sharpest direction")
    return Table(labels=labels, lines=lines, is_number=(False, False, True, True, True))
