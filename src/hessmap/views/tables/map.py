"""A map of curvature as tables: the ranks, the layers, the verdicts."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hessmap.results.maps import CurvatureMap, NetworkCurvature, PartCurvature
from hessmap.views.tables.style import new_table
from hessmap.views.tables.words import HESSIAN_NAMES, TRUTH_NAMES, number, ratio

_AGREEMENT = {
    True: Text("yes", style="green"),
    False: Text("NO", style="bold red"),
    None: Text("–", style="dim"),
}


def map_view(curvature_map: CurvatureMap) -> RenderableType:
    """Everything a terminal can show of a map."""
    networks = [network_view(network) for network in curvature_map.networks]
    return Group(*networks, layers_table(curvature_map.network), verdicts_view(curvature_map))


def network_view(network: NetworkCurvature) -> RenderableType:
    """The three ranks of one network under a line of its size, risk and gradient."""
    facts = (
        f"{network.num_parameters:,} parameters, {network.num_samples:,} samples, {network.loss} loss, "
        f"risk {number(network.risk)}, gradient norm {number(network.gradient_norm)}"
    )
    head = Text.assemble((network.name, "bold"), f": {network.description}\n", (facts, "dim"))
    lines = [Text(f"No prediction: {network.prediction_gap}")] if network.prediction_gap else []
    if not all(part.measurement.decidable for part in network.parts):
        lines.append(Text("? no clear cut: the measured rank depends on the threshold", style="yellow"))
    lines += [Text(note, style="dim") for note in network.notes]
    return Padding(Group(head, ranks_table(network), *lines), (1, 0, 0, 0))


def ranks_table(network: NetworkCurvature) -> Table:
    """Predicted, measured and (where there is one) certified ranks, with the gap around the measured cut."""
    has_certificate = any(part.certificate is not None for part in network.parts)
    table = new_table()
    table.add_column("Hessian", no_wrap=True)
    table.add_column("predicted", justify="right")
    table.add_column("truth")
    for head in ("measured", *(["certified"] if has_certificate else []), "gap"):
        table.add_column(head, justify="right")
    table.add_column("agrees")
    for part in network.parts:
        table.add_row(*_rank_cells(part, has_certificate))
    return table


def _rank_cells(part: PartCurvature, has_certificate: bool) -> list[str | Text]:
    predicted, measured, certified = part.prediction, part.measurement, part.certificate
    proof = ["–" if certified is None else f"{certified.value:,}"] if has_certificate else []
    return [
        HESSIAN_NAMES[part.part],
        "–" if predicted is None else f"{predicted.value:,}",
        "–" if predicted is None else TRUTH_NAMES[predicted.kind],
        f"{measured.value:,}",
        *proof,
        ratio(measured.gap) if measured.decidable else Text(f"{ratio(measured.gap)} ?", style="yellow"),
        _AGREEMENT[part.agrees],
    ]


def layers_table(network: NetworkCurvature) -> RenderableType:
    """One row per layer: the layer's block of the loss Hessian, and its share of the curvature."""
    table = new_table()
    table.add_column("layer")
    table.add_column("shape")
    for head in ("parameters", "rank", "top eigenvalue", "trace", "share"):
        table.add_column(head, justify="right")
    for layer in network.layers:
        table.add_row(
            layer.name,
            layer.shape,
            f"{layer.num_parameters:,}",
            f"{layer.rank.value:,}",
            number(layer.top_eigenvalue),
            number(layer.trace),
            f"{layer.curvature_share:.1%}",
        )
    about = "rank, top eigenvalue and trace of each layer's block of H_L; share of the trace of H_o"
    title = Text.assemble(("Layers", "bold"), f" of the {network.name}\n", (about, "dim"))
    return Padding(Group(title, table), (1, 0, 0, 0))


def verdicts_view(curvature_map: CurvatureMap) -> RenderableType:
    """The verdicts, one bullet each."""
    grid = Table.grid(padding=(0, 1))
    for verdict in curvature_map.verdicts:
        grid.add_row("•", Text(verdict))
    return Padding(Group(Text("Verdicts", style="bold"), grid), (1, 0, 1, 0))
