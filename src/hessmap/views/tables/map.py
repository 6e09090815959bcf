"""Maps of curvature as tables: the whole, the layers, the ranks and the verdicts of one, and those of a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from hessmap.records import (
    CurvatureMap,
    FactorCurvature,
    LayerCurvature,
    MapSummary,
    NetworkCurvature,
    PartCurvature,
    whole_of,
)
from hessmap.views.tables.contents import HESSIAN_NAMES, FittingTable, Table, moment, number, ratio

LAYERS_LEGEND = "rank, top eigenvalue and trace of each layer's own block of H_L; share of the trace of H_o"
ESTIMATED_LAYERS_LEGEND = "top eigenvalue and trace of each layer's own block of H_L; share of the trace of H_o"
KINDS_LEGEND = "top eigenvalue: the largest of a single layer; ratio: share of the curvature over share of parameters"
FACTORS_LEGEND = (
    "in: lambda_1 / lambda_2 of E[x x^T] of a layer's inputs; out {few}: part of the output factor E[M] in its {few} "
    "largest eigenvalues, one less than the classes; fit {few}: overlap of the {few} sharpest directions with those of "
    "the product of the two (1: the same)"
)
SHORT_FACTORS_LEGEND = (
    "in: lambda_1 / lambda_2 of E[x x^T] of a layer's inputs; out {few}: part of the output factor E[M] in its {few} "
    "largest eigenvalues, one less than the classes"
)
_LOOSE = 0.02  # of a top eigenvalue: a residual above it is shown
NO_CLEAR_CUT = "? no clear cut: the measured rank depends on the threshold"
_AGREEMENT = {True: "yes", False: "NO", None: "–"}
_AGREEMENT_STYLE = {"yes": "green", "NO": "bold red"}


def map_view(curvature_map: CurvatureMap) -> RenderableType:
    """Everything a terminal can show of a map: the whole network first, then its layers, then ranks, then verdicts."""
    network = curvature_map.network
    head = Text.assemble((network.name, "bold"), f": {network.description}\n", (network_facts(network), "dim"))
    reason = [Text(estimates_note(network), style="yellow")] if not network.is_dense else []
    notes = [Text(note, style="dim") for note in network.notes] if not network.is_dense else []
    whole = Padding(Group(head, *reason, FittingTable(whole_table(network)), *notes), (1, 0, 0, 0))
    kinds = [kinds_view(network)] if has_kinds(network) else []
    ranks = [network_view(item) for item in curvature_map.networks if item.is_dense]
    return Group(whole, layers_table(network), *kinds, *ranks, verdicts_view(curvature_map.verdicts))


def estimates_note(network: NetworkCurvature) -> str:
    """That the numbers are estimates, and why."""
    return f"Estimates from products, without ranks: {network.reason}."


def whole_table(network: NetworkCurvature) -> Table:
    """The numbers of the whole network."""
    return Table(("whole network", "value"), tuple(whole_of(network).rows()), (False, True))


def network_view(network: NetworkCurvature) -> RenderableType:
    """The three ranks of one network, and what is to be said of them."""
    head = Text.assemble(("Ranks", "bold"), f" of the {network.name}: {network.description}")
    facts = [Text(network_facts(network), style="dim")] if network.name != "network" else []
    lines = [Text(f"No prediction: {network.prediction_gap}")] if network.prediction_gap else []
    if has_doubt(network):
        lines.append(Text(NO_CLEAR_CUT, style="yellow"))
    lines += [Text(note, style="dim") for note in network.notes]
    return Padding(Group(head, *facts, ranks_table(network), *lines), (1, 0, 0, 0))


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
    text = LAYERS_LEGEND if network.is_dense else ESTIMATED_LAYERS_LEGEND
    unknown = sum(layer.top_eigenvalue is None for layer in network.layers)
    if unknown:
        text += f"; for {unknown} of {len(network.layers)} top eigenvalues there was no time"
    if any(_is_bound(layer) for layer in network.layers):
        text += "; ≥: a lower bound that did not converge"
    if few:
        has_overlap = any(
            layer.factors is not None and layer.factors.kronecker_overlap is not None for layer in network.layers
        )
        legend = FACTORS_LEGEND if has_overlap else SHORT_FACTORS_LEGEND
        return f"{text}; {legend.format(few=few)}"
    gap = network.factors_gap.removesuffix(".")
    return f"{text}; without the factors of the layers: {gap}" if gap else text


def _num_outliers(network: NetworkCurvature) -> int:
    """One less than the classes; 0 where no layer has factors."""
    return max((layer.factors.num_classes - 1 for layer in network.layers if layer.factors is not None), default=0)


def layers(network: NetworkCurvature) -> Table:
    """One row per layer: the layer's block of the loss Hessian, its share of the curvature, and its factors if any."""
    few = _num_outliers(network)
    overlaps = any(layer.factors and layer.factors.kronecker_overlap is not None for layer in network.layers)
    names_kinds = len({layer.kind for layer in network.layers}) > 1
    lines = tuple(
        (
            layer.name,
            *([layer.kind] if names_kinds else []),
            layer.shape,
            f"{layer.num_parameters:,}",
            *([] if layer.rank is None else [f"{layer.rank.value:,}"]),
            *_curvature_cells(layer),
            *(_factor_cells(layer.factors, overlaps) if few else ()),
        )
        for layer in network.layers
    )
    of_factors = ("in", f"out {few}", *([f"fit {few}"] if overlaps else [])) if few else ()
    texts = ("layer", *(["kind"] if names_kinds else []), "shape")
    ranks = ("rank",) if network.is_dense else ()
    labels = (*texts, "parameters", *ranks, "top eigenvalue", "trace", "share", *of_factors)
    return Table(labels, lines, (*(False for _ in texts), *(True for _ in labels[len(texts) :])))


def _is_bound(layer: LayerCurvature) -> bool:
    """Whether no more is known of a top eigenvalue than that it is not below a value."""
    return layer.top_eigenvalue is not None and layer.top_converged is False


def _curvature_cells(layer: LayerCurvature) -> tuple[str, str, str]:
    top = "–" if layer.top_eigenvalue is None else number(layer.top_eigenvalue)
    if _is_bound(layer):
        top = f"≥ {top}"
    elif layer.top_eigenvalue is not None and (layer.top_residual or 0.0) > _LOOSE * abs(layer.top_eigenvalue):
        top += f" ± {layer.top_residual:.1g}"
    trace = number(layer.trace) + (f" ± {layer.trace_error:.1g}" if layer.trace_error else "")
    if not layer.trace_error < abs(layer.trace) and layer.trace_error:
        trace = f"{number(layer.trace - layer.trace_error)} to {number(layer.trace + layer.trace_error)}"
    share = f"{layer.curvature_share:.1%}" + (f" ± {layer.share_error:.1%}" if layer.share_error >= 5e-4 else "")
    if layer.share_error >= max(5e-4, layer.curvature_share):
        share = f"at most {min(1.0, layer.curvature_share + 2 * layer.share_error):.1%}"
    return top, trace, share


def _factor_cells(factors: FactorCurvature | None, overlaps: bool) -> tuple[str, ...]:
    if factors is None:
        return ("–", "–", "–") if overlaps else ("–", "–")
    outputs = "–" if factors.outlier_share is None else f"{factors.outlier_share:.0%}"
    if not overlaps:
        return number(factors.input_ratio), outputs
    overlap = "–" if factors.kronecker_overlap is None else f"{factors.kronecker_overlap:.2f}"
    return number(factors.input_ratio), outputs, overlap


def has_kinds(network: NetworkCurvature) -> bool:
    """Whether layers of different kinds occur more than once each, as in a transformer."""
    kinds = [layer.kind for layer in network.layers]
    return len(set(kinds)) > 2 and len(kinds) > 2 * len(set(kinds))


def kinds_view(network: NetworkCurvature) -> RenderableType:
    """The kinds of layers for a terminal."""
    title = Text.assemble(("Kinds of layers", "bold"), "\n", (KINDS_LEGEND, "dim"))
    return Padding(Group(title, FittingTable(kinds(network))), (1, 0, 0, 0))


def kinds(network: NetworkCurvature) -> Table:
    """The layers of each kind together: how many, their parameters, trace and share, the largest top eigenvalue."""
    lines = []
    for kind in dict.fromkeys(layer.kind for layer in network.layers):
        same = [layer for layer in network.layers if layer.kind == kind]
        size, share = sum(layer.num_parameters for layer in same), sum(layer.curvature_share for layer in same)
        tops = [layer.top_eigenvalue for layer in same if layer.top_eigenvalue is not None]
        lines.append(
            (
                kind,
                f"{len(same)}",
                f"{size:,}",
                number(max(tops)) if tops else "–",
                number(sum(layer.trace for layer in same)),
                f"{share:.1%}",
                number(share / (size / network.num_parameters)),
            )
        )
    labels = ("kind", "layers", "parameters", "top eigenvalue", "trace", "share", "ratio")
    return Table(labels, tuple(lines), (False, *(True for _ in labels[1:])))


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
