"""Maps of curvature as tables: the whole network, the layers, the ranks and the findings; the maps of a store.

Also predicted ranks, and the data sets of this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from hessmap.records import (
    HESSIAN_SYMBOLS,
    PARTS,
    CurvatureMap,
    DataSetStatus,
    FactorCurvature,
    LayerCurvature,
    MapSummary,
    NetworkCurvature,
    Part,
    PartCurvature,
    RankPrediction,
    RankValue,
    whole_of,
)
from hessmap.views.tables.contents import HESSIAN_NAMES, FittingTable, Table, moment, new_table, number, ratio

KINDS_LEGEND = (
    "largest eigenvalue: of a single layer; per parameter: share of the curvature divided by share of the parameters"
)
FACTORS_LEGEND = (
    "input gap: lambda_1 / lambda_2 of the second moment E[x x^T] of a layer's inputs; output top {few}: part of the "
    "output factor E[M] in its {few} largest eigenvalues (c - 1 for c classes)"
)
OVERLAP_LEGEND = "K-FAC overlap: of the top {few} eigenvectors of E[M] (x) E[x x^T] with those of the layer's block"
RANKS_LEGEND = "gap: smallest eigenvalue that is counted over the largest that is not"
NO_CLEAR_GAP = "? no clear gap: the measured rank depends on the threshold"
_LOOSE = 0.02  # of a largest eigenvalue: a residual above it is shown
_AGREEMENT = {True: "yes", False: "NO", None: "–"}
_AGREEMENT_STYLE = {"yes": "green", "NO": "bold red"}


def map_view(curvature_map: CurvatureMap, factors: bool = False) -> RenderableType:
    """A map for a terminal: the whole network in five numbers, its layers, the ranks if it has them, the findings.

    Args:
        curvature_map: The map.
        factors: Also show the columns of the Kronecker factors of the layers. Defaults to False.

    Returns:
        RenderableType: The text, which adapts to the width of the terminal.
    """
    network = curvature_map.network
    head = Text.assemble((network.description, "bold"), "\n", (network_facts(network), "dim"))
    reason = [Text(estimates_note(network), style="yellow")] if not network.is_dense else []
    notes = [Text(_capital(f"{note}."), style="dim") for note in network.notes]
    whole = Padding(Group(head, *reason, FittingTable(whole_table(network)), *notes), (1, 0, 0, 0))
    kinds = [kinds_view(network)] if has_kinds(network) else []
    ranks = [network_view(item) for item in curvature_map.networks if item.has_ranks]
    findings = [summary_view(curvature_map.summary)] if curvature_map.summary else [Text("")]
    return Group(whole, layers_table(network, factors), *kinds, *ranks, *findings)


def estimates_note(network: NetworkCurvature) -> str:
    """That the numbers are estimates, and why."""
    return f"Estimates from matrix-vector products (± is a standard error): {network.reason}."


def whole_table(network: NetworkCurvature) -> Table:
    """The numbers of the whole network."""
    return Table(("whole network", "value"), tuple(whole_of(network).rows()), (False, True))


def network_view(network: NetworkCurvature) -> RenderableType:
    """The three ranks of one network.

    Args:
        network: The network, with ranks.

    Returns:
        RenderableType: A table with its heading.
    """
    head = Text.assemble(("Ranks", "bold"), f" of the {network.name}\n", (RANKS_LEGEND, "dim"))
    lines = [Text(line) for line in rank_notes(network)]
    return Padding(Group(head, ranks_table(network), *lines), (1, 0, 0, 0))


def rank_notes(network: NetworkCurvature) -> list[str]:
    """Why there is no prediction, and that a rank depends on the threshold."""
    gap = network.prediction_gap
    if not gap and not any(part.prediction is not None for part in network.parts):
        gap = "no theorem, bound or conjecture covers this network"
    lines = [f"No prediction: {gap.removesuffix('.')}."] if gap else []
    return [*lines, NO_CLEAR_GAP] if has_undecided_rank(network) else lines


def network_facts(network: NetworkCurvature) -> str:
    """Size, data, loss and gradient of a network in one line."""
    return (
        f"{network.num_parameters:,} parameters, {network.num_samples:,} samples; {network.loss} loss "
        f"{number(network.risk)}, gradient norm {number(network.gradient_norm)}"
    )


def has_undecided_rank(network: NetworkCurvature) -> bool:
    """Whether a rank of the network depends on the threshold."""
    return not all(part.measurement.decidable for part in network.parts)


def ranks_table(network: NetworkCurvature) -> RenderableType:
    """The ranks of a network for a terminal.

    Args:
        network: The network.

    Returns:
        RenderableType: The table.
    """
    return FittingTable(ranks(network), _style)


def _style(text: str) -> str:
    return "yellow" if text.endswith("?") else _AGREEMENT_STYLE.get(text, "")


def ranks(network: NetworkCurvature) -> Table:
    """Measured ranks with the gap at the threshold, certified and predicted ones where there are such."""
    has_certificate = any(part.certificate is not None for part in network.parts)
    has_prediction = any(part.prediction is not None for part in network.parts)
    certified = ("certified",) if has_certificate else ()
    predicted = ("predicted", "kind", "agrees") if has_prediction else ()
    return Table(
        labels=("Hessian", "measured", "gap", *certified, *predicted),
        lines=tuple(_rank_cells(part, has_certificate, has_prediction) for part in network.parts),
        is_number=(False, True, True, *(True for _ in certified), *((True, False, False) if predicted else ())),
        is_key=(True, False, False, *(False for _ in certified), *(False for _ in predicted)),
    )


def _rank_cells(part: PartCurvature, has_certificate: bool, has_prediction: bool) -> tuple[str, ...]:
    claim, measured, certified = part.prediction, part.measurement, part.certificate
    cells = [HESSIAN_NAMES[part.part], f"{measured.value:,}"]
    cells.append(ratio(measured.gap) if measured.decidable else f"{ratio(measured.gap)} ?")
    if has_certificate:
        cells.append("–" if certified is None else f"{certified.value:,}")
    if has_prediction:
        predicted = ("–", "–") if claim is None else (f"{claim.value:,}", claim.kind_text)
        cells += [*predicted, _AGREEMENT[part.agrees]]
    return tuple(cells)


def layers_table(network: NetworkCurvature, factors: bool = False) -> RenderableType:
    """The layers of a network for a terminal.

    Args:
        network: The network.
        factors: Also show the columns of the Kronecker factors. Defaults to False.

    Returns:
        RenderableType: A table with its heading.
    """
    title = Text.assemble(("Layers", "bold"), "\n", (layers_legend(network, factors), "dim"))
    return Padding(Group(title, FittingTable(layers(network, factors))), (1, 0, 0, 0))


def layers_legend(network: NetworkCurvature, factors: bool = False) -> str:
    """The meaning of the columns, and why those of the factors are missing where they are."""
    of = "the GGN (Gauss-Newton matrix)" if network.shares_of == "outer_product" else "the Hessian"
    text = f"eigenvalue and trace of each layer's own block of the Hessian; share of the trace of {of}"
    unknown = sum(layer.top_eigenvalue is None for layer in network.layers)
    if unknown:
        text += f"; {unknown} of {len(network.layers)} eigenvalues were not computed in time"
    if any(_is_bound(layer) for layer in network.layers):
        text += "; ≥: a lower bound that did not converge"
    if not factors:
        return text
    few = _num_outliers(network)
    if few:
        legends = [FACTORS_LEGEND, *([OVERLAP_LEGEND] if _has_overlaps(network) else [])]
        return f"{text}; {'; '.join(legends).format(few=few)}"
    gap = network.factors_gap.removesuffix(".")
    return f"{text}; the layers have no Kronecker factors: {gap}" if gap else text


def _has_overlaps(network: NetworkCurvature) -> bool:
    return any(layer.factors and layer.factors.kronecker_overlap is not None for layer in network.layers)


def _num_outliers(network: NetworkCurvature) -> int:
    """One less than the number of classes; 0 where no layer has factors."""
    return max((layer.factors.num_classes - 1 for layer in network.layers if layer.factors is not None), default=0)


def layers(network: NetworkCurvature, factors: bool = False) -> Table:
    """One row per layer: its block of the loss Hessian, its share of the curvature, its factors on request."""
    few = _num_outliers(network) if factors else 0
    overlaps = _has_overlaps(network)
    names_kinds = len({layer.kind for layer in network.layers}) > 1
    lines = tuple(
        (
            layer.name,
            *([layer.kind] if names_kinds else []),
            layer.shape,
            f"{layer.num_parameters:,}",
            *([f"{layer.rank.value:,}"] if network.has_ranks and layer.rank is not None else []),
            *_curvature_cells(layer),
            *(_factor_cells(layer.factors, overlaps) if few else ()),
        )
        for layer in network.layers
    )
    of_factors = ("input gap", f"output top {few}", *(["K-FAC overlap"] if overlaps else [])) if few else ()
    texts = ("layer", *(["kind"] if names_kinds else []), "shape")
    ranks = ("rank",) if network.has_ranks else ()
    labels = (*texts, "parameters", *ranks, "largest eigenvalue", "trace", "share of curvature", *of_factors)
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
    overlap = "–" if factors.kronecker_overlap is None else f"{factors.kronecker_overlap:.0%}"
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
    labels = ("kind", "layers", "parameters", "largest eigenvalue", "trace", "share of curvature", "per parameter")
    return Table(labels, tuple(lines), (False, *(True for _ in labels[1:])))


def summary_view(findings: Sequence[str]) -> RenderableType:
    """Findings in words, one bullet each.

    Args:
        findings: The sentences.

    Returns:
        RenderableType: A list with its heading.
    """
    grid = RichTable.grid(padding=(0, 1))
    for finding in findings:
        grid.add_row("•", Text(finding))
    return Padding(Group(Text("Findings", style="bold"), grid), (1, 0, 1, 0))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:].replace("..", ".")


def stored_maps_view(summaries: Sequence[MapSummary], store: Path) -> RenderableType:
    """List stored maps, oldest first; a sentence where there is none.

    Args:
        summaries: One summary for each map.
        store: File of the store, for the sentence.

    Returns:
        RenderableType: A table with a row per map.
    """
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


_IN_THE_TITLE = {"widths", "bias", "activation", "loss"}


def prediction_view(prediction: RankPrediction, title: str = "") -> RenderableType:
    """Show three predicted ranks with their kind, then references, the integers behind them, and assumptions.

    Args:
        prediction: The prediction.
        title: Heading. Default: none.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
    ranks: dict[Part, RankValue] = {part: getattr(prediction, part) for part in PARTS}
    head = [Text(title, style="italic")] if title else []
    return Group(
        *head,
        FittingTable(rank_table(prediction)),
        *_section("Sources", (f"{HESSIAN_SYMBOLS[part]}: {_source(rank)}" for part, rank in ranks.items())),
        *_section("Computed from", _integers(prediction)),
        *_section("Assumed", prediction.assumptions),
    )


def rank_table(prediction: RankPrediction) -> Table:
    """A line for each Hessian; numbers keep all their digits on any terminal."""
    lines = tuple(
        (
            HESSIAN_NAMES[part],
            f"{rank.value:,}",
            f"{prediction.num_parameters:,}",
            f"{rank.value / prediction.num_parameters:.1%}",
            rank.kind_text,
        )
        for part, rank in ((part, getattr(prediction, part)) for part in PARTS)
    )
    is_number, is_key = (False, True, True, True, False), (True, False, False, False, False)
    return Table(("Hessian", "rank", "of", "share", "kind"), lines, is_number, is_key)


def _source(rank: RankValue) -> str:
    """The reference, and the evidence for what is not proved."""
    if rank.num_cases is None:
        return rank.reference
    return f"{rank.reference} (not proved; no counterexample in {rank.num_cases:,} networks)"


def _integers(prediction: RankPrediction) -> list[str]:
    """The inputs by name: numbers with their value, flags only where they are set."""
    named = [
        name.replace("_", " ") + ("" if value is True else f" {value}")
        for name, value in prediction.inputs.items()
        if value is not None and value is not False and name not in _IN_THE_TITLE
    ]
    return [", ".join(named)] if named else []


def _section(head: str, lines: Iterable[str]) -> list[RenderableType]:
    shown = [Padding(Text(line), (0, 0, 0, 2)) for line in lines]
    return [Text(head, style="bold"), *shown] if shown else []


def data_view(statuses: Sequence[DataSetStatus], folders: Sequence[str]) -> RenderableType:
    """Show a row per data set, how to get those that are missing, and the folders that were searched.

    Args:
        statuses: The data sets.
        folders: The folders.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
    table = new_table()
    table.add_column("data set")
    table.add_column("here")
    for head in ("training", "test", "image", "classes"):
        table.add_column(head, justify="right", overflow="fold")
    table.add_column("folder", overflow="fold")
    for status in statuses:
        table.add_row(
            status.name,
            _presence(status),
            f"{status.num_train:,}",
            f"{status.num_test:,}",
            "×".join(str(size) for size in status.image_shape),
            str(status.num_classes),
            status.folder if status.is_present else "",
        )
    missing = [_how_to_get(status) for status in statuses if not status.is_present]
    searched = Text("Files are looked for in: " + ", ".join(folders), style="dim")
    return Group(Padding(table, (0, 0, 1, 0)), *missing, searched)


def _presence(status: DataSetStatus) -> Text:
    if not status.is_present:
        return Text("no", style="yellow")
    if status.is_original is None:
        return Text("yes", style="green")
    return Text("verified", style="green") if status.is_original else Text("CHANGED", style="bold red")


def _how_to_get(status: DataSetStatus) -> RenderableType:
    text = Text.assemble((status.name, "bold"), f" lacks {len(status.missing)} files: {', '.join(status.missing)}.\n")
    text.append(f"{status.source}.\nPut them into {status.folder}")
    return Padding(text, (0, 0, 1, 0))
