"""Maps of curvature as tables: the ranks, the layers and the verdicts of one, and those of a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from hessmap.results.maps import CurvatureMap, FactorCurvature, NetworkCurvature, PartCurvature
from hessmap.runs.store import MapSummary
from hessmap.views.tables.contents import HESSIAN_NAMES, FittingTable, Table, moment, number, ratio

LAYERS_LEGEND = "rank, top eigenvalue and trace of each layer's block of H_L; share of the trace of H_o"
FACTORS_LEGEND = (
    "in: lambda_1 / lambda_2 of E[x x^T] of a layer's inputs; out {few}: part of the output factor E[M] in its {few} "
    "largest eigenvalues, one less than the classes; fit {few}: overlap of the {few} sharpest directions with those of "
    "the product of the two (1: the same)"
)
NO_CLEAR_CUT = "? no clear cut: the measured rank depends on the threshold"
_AGREEMENT = {True: "yes", False: "NO", None: "–"}
_AGREEMENT_STYLE = {"yes": "green", "NO": "bold red"}


def map_view(curvature_map: CurvatureMap) -> RenderableType:
    """Everything a terminal can show of a map."""
    networks = [network_view(network) for network in curvature_map.networks]
    return Group(*networks, layers_table(curvature_map.network), verdicts_view(curvature_map.verdicts))


def network_view(network: NetworkCurvature) -> RenderableType:
    """The three ranks of one network under a line of its size, risk and gradient."""
    head = Text.assemble((network.name, "bold"), f": {network.description}\n", (network_facts(network), "dim"))
    lines = [Text(f"No prediction: {network.prediction_gap}")] if network.prediction_gap else []
    if has_doubt(network):
        lines.append(Text(NO_CLEAR_CUT, style="yellow"))
    lines += [Text(note, style="dim") for note in network.notes]
    return Padding(Group(head, ranks_table(network), *lines), (1, 0, 0, 0))


def network_facts(network: NetworkCurvature) -> str:
    return (
        f"{network.num_parameters:,} parameters, {network.num_samples:,} samples, {network.loss} loss, "
        f"risk {number(network.risk)}, gradient norm {number(network.gradient_norm)}"
    )


def has_doubt(network: NetworkCurvature) -> bool:
    """Whether a rank of the network depends on the threshold."""
    return not all(part.measurement.decidable for part in network.parts)


def ranks_table(network: NetworkCurvature) -> RenderableType:
    """The ranks for a terminal."""
    return FittingTable(ranks(network), _style)


def _style(text: str) -> str:
    return "yellow" if text.endswith("?") else _AGREEMENT_STYLE.get(text, "")


def ranks(network: NetworkCurvature) -> Table:
    """Predicted, measured and (where there is one) certified ranks, with the gap around the measured cut."""
    has_certificate = any(part.certificate is not None for part in network.parts)
    certified = ("certified",) if has_certificate else ()
    return Table(
        labels=("Hessian", "predicted", "truth", "measured", *certified, "gap", "agrees"),
        lines=tuple(_rank_cells(part, has_certificate) for part in network.parts),
        is_number=(False, True, False, True, *(True for _ in certified), True, False),
    )


def _rank_cells(part: PartCurvature, has_certificate: bool) -> tuple[str, ...]:
    predicted, measured, certified = part.prediction, part.measurement, part.certificate
    return (
        HESSIAN_NAMES[part.part],
        "–" if predicted is None else f"{predicted.value:,}",
        "–" if predicted is None else predicted.truth,
        f"{measured.value:,}",
        *(["–" if certified is None else f"{certified.value:,}"] if has_certificate else []),
        ratio(measured.gap) if measured.decidable else f"{ratio(measured.gap)} ?",
        _AGREEMENT[part.agrees],
    )


def layers_table(network: NetworkCurvature) -> RenderableType:
    """The layers for a terminal."""
    title = Text.assemble(("Layers", "bold"), f" of the {network.name}\n", (layers_legend(network), "dim"))
    return Padding(Group(title, FittingTable(layers(network))), (1, 0, 0, 0))


def layers_legend(network: NetworkCurvature) -> str:
    """What the columns are, and why those of the factors are missing where they are."""
    few = _num_outliers(network)
    if few:
        return f"{LAYERS_LEGEND}; {FACTORS_LEGEND.format(few=few)}"
    gap = network.factors_gap.removesuffix(".")
    return f"{LAYERS_LEGEND}; without the factors of the layers: {gap}" if gap else LAYERS_LEGEND


def _num_outliers(network: NetworkCurvature) -> int:
    """One less than the classes; 0 where no layer has factors."""
    return max((layer.factors.num_classes - 1 for layer in network.layers if layer.factors is not None), default=0)


def layers(network: NetworkCurvature) -> Table:
    """One row per layer: the layer's block of the loss Hessian, its share of the curvature, and its factors if any."""
    few = _num_outliers(network)
    lines = tuple(
        (
            layer.name,
            layer.shape,
            f"{layer.num_parameters:,}",
            f"{layer.rank.value:,}",
            number(layer.top_eigenvalue),
            number(layer.trace),
            f"{layer.curvature_share:.1%}",
            *(_factor_cells(layer.factors) if few else ()),
        )
        for layer in network.layers
    )
    of_factors = ("in", f"out {few}", f"fit {few}") if few else ()
    labels = ("layer", "shape", "parameters", "rank", "top eigenvalue", "trace", "share", *of_factors)
    return Table(labels, lines, (False, False, *(True for _ in labels[2:])))


def _factor_cells(factors: FactorCurvature | None) -> tuple[str, ...]:
    if factors is None:
        return "–", "–", "–"
    outputs = "–" if factors.outlier_share is None else f"{factors.outlier_share:.0%}"
    return number(factors.input_ratio), outputs, f"{factors.kronecker_overlap:.2f}"


def verdicts_view(verdicts: Sequence[str]) -> RenderableType:
    """The verdicts, one bullet each."""
    grid = RichTable.grid(padding=(0, 1))
    for verdict in verdicts:
        grid.add_row("•", Text(verdict))
    return Padding(Group(Text("Verdicts", style="bold"), grid), (1, 0, 1, 0))


def stored_maps_view(summaries: Sequence[MapSummary], store: Path) -> RenderableType:
    """A row per map, oldest first; a sentence where there is none."""
    if not summaries:
        return Text(f"No map is stored in {store}; hessmap map makes one.")
    lines = tuple(
        (
            summary.name,
            moment(summary.created).removesuffix(" UTC"),
            summary.network,
            summary.loss,
            f"{summary.num_parameters:,}",
            f"{summary.num_samples:,}",
            "–" if summary.risk is None else number(summary.risk),
        )
        for summary in summaries
    )
    labels = ("map", "made (UTC)", "network", "loss", "parameters", "samples", "risk")
    return FittingTable(Table(labels, lines, (False, False, False, False, True, True, True)))
