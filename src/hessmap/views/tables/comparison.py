"""Curvature that changes as tables: from one map to another, and along a training; the tracks of a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hessmap.maps.comparison import track_summary
from hessmap.records import Change, CurvatureTrack, MapComparison, MapIdentity, TrackPoint, TrackSummary
from hessmap.views.tables.contents import HESSIAN_NAMES, FittingTable, Table, moment, number
from hessmap.views.tables.map import FACTORS_LEGEND, OVERLAP_LEGEND, summary_view

LAYERS_LEGEND = "eigenvalue and trace of each layer's own block of the Hessian; share of the trace of the GGN"
NO_CLEAR_GAP = "? no clear gap in one of the two: there the rank depends on the threshold"
POINTS_LEGEND = (
    "norm of the gradient; sharpness and trace of the {part} Hessian; overlap: the share of the gradient in the "
    "sharpest directions"
)
_MANY = 40


def comparison_view(comparison: MapComparison) -> RenderableType:
    """Show a comparison of two maps: caveats, the whole network, Hessians, layers, then the main changes.

    Args:
        comparison: The comparison.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
    old, new = comparison.old, comparison.new
    head = Text.assemble((f"{old.name} → {new.name}", "bold"), "\n", (identity_line(old), "dim"), "\n")
    head.append(identity_line(new), style="dim")
    warned = [Padding(Text(caveat, style="yellow"), (1, 0, 0, 0)) for caveat in comparison.caveats]
    tables = [numbers(comparison), *([parts(comparison)] if comparison.parts else [])]
    tables += [layers(comparison)] if comparison.layers else []
    tables += [factors(comparison)] if has_factors(comparison) else []
    shown = [Padding(FittingTable(table, _style), (1, 0, 0, 0)) for table in tables]
    undecided = [Text(NO_CLEAR_GAP, style="yellow")] if has_undecided_rank(comparison) else []
    return Padding(Group(head, *warned, *shown, *undecided, summary_view(comparison.summary)), (1, 0, 0, 0))


def identity_line(identity: MapIdentity) -> str:
    made = f", {moment(identity.created)}" if identity.created else ""
    return f"{identity.name}: {identity.description}, {identity.loss} loss, {identity.num_samples:,} samples{made}"


def has_undecided_rank(comparison: MapComparison) -> bool:
    """Whether a rank in the tables depends on the threshold."""
    is_clear = [part.is_decidable for part in comparison.parts] + [layer.is_decidable for layer in comparison.layers]
    return not all(is_clear)


def numbers(comparison: MapComparison) -> Table:
    """Risk, gradient norm and the curvature of the whole network, before and after."""
    named = {
        "risk": comparison.risk,
        "gradient norm": comparison.gradient_norm,
        "sharpness (largest eigenvalue of H_L)": comparison.sharpness,
        "trace of H_L": comparison.trace,
        "share of negative curvature": comparison.negative_share,
        "effective dimension": comparison.effective_dimension,
    }
    rows = {label: item for label, item in named.items() if item is not None}
    lines = tuple((label, number(item.old), number(item.new), _ratio(item)) for label, item in rows.items())
    return Table(("network", comparison.old.name, comparison.new.name, "ratio"), lines, (False, True, True, True))


def parts(comparison: MapComparison) -> Table:
    """Rank and norm of the three Hessians, before and after."""
    lines = tuple(
        (HESSIAN_NAMES[part.part], _ranks(part.rank, part.is_decidable), _numbers(part.norm), _ratio(part.norm))
        for part in comparison.parts
    )
    return Table(("Hessian", "rank", "norm", "ratio"), lines, (False, True, True, True))


def layers(comparison: MapComparison) -> Table:
    """One row per layer that both maps have: its block of the loss Hessian, and its share of the curvature."""
    lines = tuple(
        (
            layer.name,
            *([] if layer.rank is None else [_ranks(layer.rank, layer.is_decidable)]),
            *(["–", "–"] if (top := layer.top_eigenvalue) is None else [_numbers(top), _ratio(top)]),
            _numbers(layer.trace),
            _ratio(layer.trace),
            f"{layer.curvature_share.old:.0%} → {layer.curvature_share.new:.0%}",
        )
        for layer in comparison.layers
    )
    rank = ("rank",) if all(layer.rank is not None for layer in comparison.layers) else ()
    labels = ("layer", *rank, "largest eigenvalue", "ratio", "trace", "ratio", "share of curvature")
    return Table(labels, lines, (False, *(True for _ in labels[1:])))


def has_factors(comparison: MapComparison) -> bool:
    """Whether both maps have the factors of a layer."""
    return any(layer.factors is not None for layer in comparison.layers)


def factors_legend(comparison: MapComparison) -> str:
    return f"{FACTORS_LEGEND}; {OVERLAP_LEGEND}".format(few=_num_outliers(comparison))


def _num_outliers(comparison: MapComparison) -> int:
    """One less than the classes; 0 where no layer has factors."""
    return max((layer.factors.num_classes - 1 for layer in comparison.layers if layer.factors is not None), default=0)


def factors(comparison: MapComparison) -> Table:
    """One row per layer whose factors both maps have, as the layers of a map show them."""
    found = [(layer.name, layer.factors) for layer in comparison.layers if layer.factors is not None]
    few = _num_outliers(comparison)
    lines = tuple(
        (
            name,
            _numbers(item.input_ratio),
            "–" if item.outlier_share is None else f"{item.outlier_share.old:.0%} → {item.outlier_share.new:.0%}",
            "–"
            if item.kronecker_overlap is None
            else f"{item.kronecker_overlap.old:.0%} → {item.kronecker_overlap.new:.0%}",
        )
        for name, item in found
    )
    return Table(("layer", "input gap", f"output top {few}", "K-FAC overlap"), lines, (False, True, True, True))


def _numbers(item: Change) -> str:
    return f"{number(item.old)} → {number(item.new)}"


def _ranks(item: Change, is_decidable: bool) -> str:
    return f"{item.old:,} → {item.new:,}{'' if is_decidable else ' ?'}"


def _ratio(item: Change) -> str:
    if item.is_within_error:
        return "within error"
    return "–" if item.ratio is None else f"× {item.ratio:.2g}"


def _style(text: str) -> str:
    return "yellow" if text.endswith("?") else ""


def stored_tracks_view(summaries: Sequence[TrackSummary], store: Path) -> RenderableType:
    """List stored tracks, oldest first; a sentence where there is none.

    Args:
        summaries: One summary for each track.
        store: File of the store, for the sentence.

    Returns:
        RenderableType: A table with a row per track.
    """
    if not summaries:
        return Text(f"No track is stored in {store}; hessmap.Tracker and hessmap tracks checkpoints make them.")
    lines = tuple(
        (
            summary.name,
            moment(summary.created)[:16],
            summary.network,
            f"{summary.num_parameters:,}",
            f"{summary.num_points:,}",
            "–" if summary.last_step is None else f"{summary.last_step:,}",
            f"{summary.spent / summary.seconds:.0%}" if summary.share is not None and summary.seconds else "–",
        )
        for summary in summaries
    )
    labels = ("track", "begun (UTC)", "network", "parameters", "points", "last step", "share")
    return FittingTable(Table(labels, lines, (False, False, False, True, True, True, True)))


def track_view(track: CurvatureTrack) -> RenderableType:
    """Show a track in a terminal: its points and its summary.

    Args:
        track: The track.

    Returns:
        RenderableType: Head line, table and summary.
    """
    head = Text.assemble((track.name, "bold"), f": {track.network}\n", (track_facts(track), "dim"))
    shown = Padding(FittingTable(track_points(track)), (1, 0, 0, 0))
    return Padding(Group(head, shown, summary_view(track_summary(track))), (1, 0, 0, 0))


def track_facts(track: CurvatureTrack) -> str:
    sizes = f"{track.num_parameters:,} parameters, {track.num_samples:,} samples, {track.loss} loss"
    return f"{sizes}; {POINTS_LEGEND.format(part=track.part.replace('_', '-'))}"


def track_points(track: CurvatureTrack) -> Table:
    """One row per point; of many, evenly chosen ones with the first and the last."""
    chosen = track.points
    if len(chosen) > _MANY:
        places = {round(place * (len(chosen) - 1) / (_MANY - 1)) for place in range(_MANY)}
        chosen = tuple(chosen[place] for place in sorted(places))
    labels: tuple[str, ...]
    labels = ("step", "risk", "gradient", "sharpness", "trace", "overlap", "products", "seconds")
    lines = tuple(map(_cells, chosen))
    if any(point.stability_ratio is not None for point in chosen):
        ratios = [point.stability_ratio for point in chosen]
        added = ["–" if ratio is None else f"{ratio:.2f}{' !' if ratio >= 1 else ''}" for ratio in ratios]
        labels = (*labels[:4], "of threshold", *labels[4:])
        lines = tuple((*line[:4], ratio, *line[4:]) for line, ratio in zip(lines, added, strict=True))
    return Table(labels, lines, tuple(True for _ in labels))


def _cells(point: TrackPoint) -> tuple[str, ...]:
    trace, overlap = point.trace, point.gradient_overlap
    return (
        f"{point.step:,}",
        number(point.risk),
        number(point.gradient_norm),
        "–" if point.sharpness is None else f"{number(point.sharpness)}{'' if point.converged else ' ?'}",
        "–" if trace is None else trace.with_error,
        "–" if overlap is None else f"{overlap.value:.2f}",
        f"{point.num_products:,}",
        number(point.cost),
    )
