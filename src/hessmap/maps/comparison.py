"""Maps of curvature compared layer by layer, and the points of a track, with what they mean in sentences.

Each sentence is true or absent. Records alone are read, so that no torch is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hessmap.errors import require, short_text
from hessmap.records import (
    HESSIAN_SYMBOLS,
    PARTS,
    Change,
    CurvatureMap,
    CurvatureTrack,
    FactorChange,
    FactorCurvature,
    LayerChange,
    LayerCurvature,
    MapComparison,
    MapIdentity,
    NetworkCurvature,
    PartChange,
    SpectralEstimate,
    TrackPoint,
    WholeCurvature,
    change,
    whole_of,
)

__all__ = ["compare_maps", "track_summary"]

# A ratio within this of 1 is called equal, of 2 twice, of 1/2 half.
_NEAR = 0.05
_CLEAR = 2.0  # standard errors by which two traces must differ to be called different


def summary(
    risk: Change,
    gradient: Change,
    sharpness: Change,
    parts: Sequence[PartChange],
    layers: Sequence[LayerChange],
    same_loss: bool,
) -> tuple[str, ...]:
    """The sentences of a comparison, most important first; of layers, the one that changed most comes first."""
    if same_loss and _nothing_changed(risk, gradient, sharpness, parts, layers):
        return ("Nothing changed: every number of the two maps is the same.",)
    sentences = [_progress_sentence(risk, gradient), _sharpness_sentence(sharpness)] if same_loss else []
    sentences += (
        [_layer_sentence(layer) for layer in sorted(layers, key=_size_of_change, reverse=True)] if same_loss else []
    )
    sentences += [_shares_sentence(layers), _ranks_sentence(parts)]
    return tuple(text for text in sentences if text)


def times(ratio: float) -> str:
    """A ratio in words.

    >>> times(2.04), times(0.51), times(1.37), times(1.0), times(0.013)
    ('twice', 'half', '1.4 times', 'just', '0.013 times')
    """
    for value, word in ((1.0, "just"), (2.0, "twice"), (0.5, "half")):
        if abs(ratio / value - 1) <= _NEAR:
            return word
    return f"{ratio:.2g} times"


def _nothing_changed(
    risk: Change,
    gradient: Change,
    sharpness: Change,
    parts: Sequence[PartChange],
    layers: Sequence[LayerChange],
) -> bool:
    changes = [risk, gradient, sharpness, *(item for part in parts for item in (part.rank, part.norm))]
    for layer in layers:
        known = (layer.rank, layer.top_eigenvalue, layer.trace, layer.curvature_share)
        changes += [item for item in known if item is not None]
    return all(item.is_unchanged for item in changes)


def _sharpness_sentence(sharpness: Change) -> str:
    text = f"Sharpness (largest eigenvalue of the Hessian): {sharpness.old:.3g} → {sharpness.new:.3g}"
    if sharpness.is_within_error:
        return f"{text}, within the standard errors."
    return f"{text}, {times(sharpness.ratio)} as sharp." if sharpness.ratio is not None else f"{text}."


def _progress_sentence(risk: Change, gradient: Change) -> str:
    direction = "stayed at" if risk.is_unchanged else "fell from" if risk.new < risk.old else "rose from"
    moved = f"{risk.old:.3g}" if risk.is_unchanged else f"{risk.old:.3g} to {risk.new:.3g}"
    return f"The risk {direction} {moved}; the gradient norm went from {gradient.old:.3g} to {gradient.new:.3g}."


def _layer_sentence(layer: LayerChange) -> str:
    top = layer.top_eigenvalue
    if top is None or top.is_within_error:
        return ""
    text = f"Layer {layer.name}: largest eigenvalue of its own block {top.old:.3g} → {top.new:.3g}"
    return f"{text}, {times(top.ratio)} as sharp." if top.ratio is not None else f"{text}."


def _size_of_change(layer: LayerChange) -> float:
    """How far a ratio is from 1, up and down alike; what has none counts as most."""
    top = layer.top_eigenvalue
    if top is None:
        return 0.0
    return math.inf if top.ratio is None else abs(math.log(top.new) - math.log(top.old))


def _shares_sentence(layers: Sequence[LayerChange]) -> str:
    """The layer that gained most of the curvature and the one that lost most."""
    if len(layers) < 2:
        return ""
    gains = {layer.name: layer.curvature_share.new - layer.curvature_share.old for layer in layers}
    gained, lost = max(layers, key=lambda layer: gains[layer.name]), min(layers, key=lambda layer: gains[layer.name])
    if max(gains[gained.name], -gains[lost.name]) < 0.01:
        return "No layer's share of the curvature changed by more than one percentage point."
    moved = [
        f"layer {layer.name} {layer.curvature_share.old:.0%} → {layer.curvature_share.new:.0%}"
        for layer in (gained, lost)
    ]
    return f"Curvature moved between layers: {', '.join(moved)} of the trace of the GGN."


def _ranks_sentence(parts: Sequence[PartChange]) -> str:
    if not parts:
        return ""
    changed = [part for part in parts if not part.rank.is_unchanged]
    if not changed:
        return "The ranks of the three Hessians are the same."
    texts = [f"{HESSIAN_SYMBOLS[part.part]} {part.rank.old:,} → {part.rank.new:,}" for part in changed]
    undecided = [HESSIAN_SYMBOLS[part.part] for part in changed if not part.is_decidable]
    note = f" No clear gap for {', '.join(undecided)}: there the rank depends on the threshold." if undecided else ""
    return f"Rank: {', '.join(texts)}.{note}"


def compare_maps(old: CurvatureMap, new: CurvatureMap, old_name: str = "old", new_name: str = "new") -> MapComparison:
    """Compare two maps layer by layer, for example of two checkpoints of a model.

    Args:
        old: The first map.
        new: The second map.
        old_name: Name of the first, for tables and sentences. Defaults to "old".
        new_name: Name of the second. Defaults to "new".

    Returns:
        MapComparison: Every number before and after. ``caveats`` states what differs besides the weights
        (architecture, data, loss) and what therefore cannot be compared; ``summary`` the main changes in words.

    Raises:
        InvalidInput: If one of the two is not a map.

    Notes:
        Directions are not compared: a map contains no eigenvectors.

    Example:
        >>> import hessmap as hm
        >>> data = hm.datasets.gaussian(30, 6, output_dim=3)
        >>> old, new = (hm.map(hm.FullyConnected((6, 4, 3)).build(seed=seed), data, loss="squared") for seed in (0, 1))
        >>> [change.name for change in compare_maps(old, new).layers]
        ['0', '2']
    """
    for given in (old, new):
        must = "maps are compared with each other"
        require(isinstance(given, CurvatureMap), must, f"got {short_text(given)}", "Make one with hm.map(model, data)")
    before, after = old.network, new.network
    one, other = _identity(old, old_name), _identity(new, new_name)
    same_loss = before.loss == after.loss
    first, second = whole_of(before), whole_of(after)
    same_epsilon = before.num_samples == after.num_samples
    dimension = _change(first.effective_dimension, second.effective_dimension, same_loss) if same_epsilon else None
    sharpness = _sharpness(first, second, same_loss)
    parts = tuple(_part_changes(before, after, same_loss))
    layers = tuple(_layer_changes(before, after, same_loss))
    risk, gradient = (
        change(getattr(before, name), getattr(after, name), same_loss) for name in ("risk", "gradient_norm")
    )
    return MapComparison(
        old=one,
        new=other,
        risk=risk,
        gradient_norm=gradient,
        effective_dimension=dimension,
        parts=parts,
        layers=layers,
        caveats=(*caveats(one, other, before.layers, after.layers), *_estimates(before, after)),
        summary=summary(risk, gradient, sharpness, parts, layers, same_loss),
        sharpness=sharpness,
        trace=_change(first.trace, second.trace, same_loss),
        negative_share=_change(first.negative_share, second.negative_share, True),
    )


def _sharpness(old: WholeCurvature, new: WholeCurvature, same_units: bool) -> Change:
    """Of exact values their rounding is no error."""
    ends = old.sharpness, new.sharpness
    errors = tuple(end.residual if end.num_products else 0.0 for end in ends)
    return change(ends[0].value, ends[1].value, same_units, (errors[0], errors[1]))


def _change(old: SpectralEstimate | None, new: SpectralEstimate | None, same_units: bool) -> Change | None:
    if old is None or new is None:
        return None
    errors = tuple(max(end.standard_error, end.method_error) for end in (old, new))
    return change(old.value, new.value, same_units, (errors[0], errors[1]))


def _identity(made: CurvatureMap, name: str) -> MapIdentity:
    network, origin = made.network, made.provenance
    return MapIdentity(
        name=name,
        description=network.description,
        loss=network.loss,
        num_samples=network.num_samples,
        num_parameters=network.num_parameters,
        data_hash=(origin.data_hash if origin else None) or "",
        created=origin.created if origin else "",
    )


def _part_changes(before: NetworkCurvature, after: NetworkCurvature, same_loss: bool) -> Iterator[PartChange]:
    for name in PARTS if before.has_ranks and after.has_ranks else ():
        old, new = before[name], after[name]
        yield PartChange(
            part=name,
            rank=change(old.rank, new.rank),
            norm=change(old.spectrum.norm, new.spectrum.norm, same_loss),
            is_decidable=all(part.certificate is not None or part.measurement.decidable for part in (old, new)),
        )


def _layer_changes(before: NetworkCurvature, after: NetworkCurvature, same_loss: bool) -> Iterator[LayerChange]:
    found = {(layer.name, layer.shape): layer for layer in after.layers}
    have_ranks = before.has_ranks and after.has_ranks
    for old in before.layers:
        new = found.get((old.name, old.shape))
        if new is not None:
            found_change = _layer_change(old, new, same_loss)
            yield found_change if have_ranks else replace(found_change, rank=None, is_decidable=True)


def _layer_change(old: LayerCurvature, new: LayerCurvature, same_loss: bool) -> LayerChange:
    ranks = None if old.rank is None or new.rank is None else (old.rank, new.rank)
    top = None
    if old.top_eigenvalue is not None and new.top_eigenvalue is not None:
        errors = [(layer.top_residual or 0.0) if layer.rank is None else 0.0 for layer in (old, new)]
        top = change(old.top_eigenvalue, new.top_eigenvalue, same_loss, (errors[0], errors[1]))
    return LayerChange(
        name=old.name,
        shape=old.shape,
        num_parameters=old.num_parameters,
        rank=None if ranks is None else change(ranks[0].value, ranks[1].value),
        top_eigenvalue=top,
        trace=change(old.trace, new.trace, same_loss, (old.trace_error, new.trace_error)),
        curvature_share=change(old.curvature_share, new.curvature_share, True, (old.share_error, new.share_error)),
        is_decidable=ranks is None or all(rank.decidable for rank in ranks),
        factors=_factor_change(old.factors, new.factors),
    )


def _factor_change(old: FactorCurvature | None, new: FactorCurvature | None) -> FactorChange | None:
    """Maps that are older than the factors have none; those of different numbers of classes have no common k."""
    if old is None or new is None or old.num_classes != new.num_classes:
        return None
    has_outliers = old.outlier_share is not None and new.outlier_share is not None
    return FactorChange(
        num_classes=new.num_classes,
        input_ratio=change(old.input_ratio, new.input_ratio),
        outlier_share=change(old.outlier_share or 0.0, new.outlier_share or 0.0) if has_outliers else None,
        kronecker_overlap=None
        if old.kronecker_overlap is None or new.kronecker_overlap is None
        else change(old.kronecker_overlap, new.kronecker_overlap),
    )


def _estimates(before: NetworkCurvature, after: NetworkCurvature) -> tuple[str, ...]:
    if before.is_dense and after.is_dense:
        return ()
    which = "Both maps are" if not before.is_dense and not after.is_dense else "One of the maps is"
    return (f"{which} made of estimates: numbers have standard errors, and ranks are not compared.",)


def caveats(
    old: MapIdentity, new: MapIdentity, old_layers: Sequence[LayerCurvature], new_layers: Sequence[LayerCurvature]
) -> tuple[str, ...]:
    """The sentences, most important first; none for two checkpoints of one model on the same data."""
    sentences = (
        _network_difference(old, new, old_layers, new_layers),
        _loss_difference(old, new),
        _data_difference(old, new),
    )
    return tuple(text for text in sentences if text)


def _network_difference(
    old: MapIdentity, new: MapIdentity, old_layers: Sequence[LayerCurvature], new_layers: Sequence[LayerCurvature]
) -> str:
    one, other = ({(layer.name, layer.shape) for layer in layers} for layers in (old_layers, new_layers))
    if one == other:
        if old.description == new.description:
            return ""
        return (
            f"The networks differ: {old.description} and {new.description}. Their layers have the same shapes, and "
            "are compared; what changed may come from the activations."
        )
    alone = [
        f"{name} of {owner.name} ({shape})"
        for owner, mine, theirs in ((old, old_layers, other), (new, new_layers, one))
        for name, shape in ((layer.name, layer.shape) for layer in mine)
        if (name, shape) not in theirs
    ]
    compared = "the other layers are compared" if one & other else "no layer can be compared"
    return (
        f"The networks differ: {old.description} and {new.description}. Layers without a counterpart of the same "
        f"name and shape: {', '.join(alone)}; {compared}."
    )


def _loss_difference(old: MapIdentity, new: MapIdentity) -> str:
    if old.loss == new.loss:
        return ""
    return (
        f"The losses differ: {old.loss} and {new.loss}. Risks, norms, eigenvalues and traces are in different units "
        "and have no ratio; ranks and shares can be compared."
    )


def _data_difference(old: MapIdentity, new: MapIdentity) -> str:
    """Data are told apart by the hash of their content; where there is none, nothing is claimed but the doubt."""
    if not (old.data_hash and new.data_hash):
        return "It is unknown whether both were made on the same data."
    if old.data_hash == new.data_hash:
        return ""
    counts = f" ({old.num_samples:,} and {new.num_samples:,} samples)" if old.num_samples != new.num_samples else ""
    return f"The data differ{counts}: what changed may come from the data as well as from the weights."


def track_summary(track: CurvatureTrack) -> tuple[str, ...]:
    """The findings of a track in words, most important first.

    Args:
        track: The track.

    Returns:
        tuple[str, ...]: The sentences; one that states that nothing was measured yet if the track is empty.
    """
    if not track.points:
        return ("Nothing was measured yet.",)
    sentences = (
        _risk_sentence(track.points),
        _sharpness_along_training(track.points),
        _edge_sentence(track),
        _trace_sentence(track.points),
        _overlap_sentence(track.points),
        _gaps_sentence(track),
        _doubt_sentence(track.points),
        _cost_sentence(track),
    )
    return tuple(text for text in sentences if text)


def _change_text(old: float, new: float) -> str:
    if old == new:
        return f"stayed at {old:.3g}"
    return f"{'fell' if new < old else 'rose'} from {old:.3g} to {new:.3g}"


def _risk_sentence(points: tuple[TrackPoint, ...]) -> str:
    first, last = points[0], points[-1]
    if len(points) == 1:
        return f"At step {first.step:,} the risk is {first.risk:.3g}; a track needs another point."
    return f"From step {first.step:,} to {last.step:,} the risk {_change_text(first.risk, last.risk)}."


def _sharpness_along_training(points: tuple[TrackPoint, ...]) -> str:
    values = {point.step: point.sharpness for point in points if point.sharpness is not None}
    if len(values) < 2:
        return ""
    steps = list(values)
    sharpest = max(steps, key=lambda step: values[step] or 0.0)
    change = f"The sharpness (largest eigenvalue) {_change_text(values[steps[0]] or 0.0, values[steps[-1]] or 0.0)}"
    if sharpest in (steps[0], steps[-1]):
        return f"{change}."
    return f"{change}; it was largest, {values[sharpest]:.3g}, at step {sharpest:,}."


def _edge_sentence(track: CurvatureTrack) -> str:
    """Where the sharpness that the optimiser meets passed its stability threshold."""
    having = [point for point in track.points if point.stability_ratio is not None]
    if not having:
        return ""
    report = having[-1].step_report
    assert report is not None
    assert report.stability_threshold is not None
    line = f"the stability threshold of {report.optimizer}, {report.threshold_formula}"
    line += f" ({report.stability_threshold.value:.6g} at step {having[-1].step:,})"
    if not track.crossings:
        closest = max(point.stability_ratio or 0.0 for point in having)
        return f"The preconditioned sharpness stays below {line}; it comes to {closest:.0%} of it."
    above = sum(1 for point in having if (point.stability_ratio or 0.0) >= 1)
    rises = [step for step, is_above in track.crossings if is_above]
    more = "" if len(rises) == 1 else f" and {len(rises) - 1} more time{'s' if len(rises) > 2 else ''}"
    first = f"At step {rises[0]:,}{more} the preconditioned sharpness rises above {line}"
    return f"{first}: at {above} of {len(having)} points a step is unstable along the sharpest direction."


def _trace_sentence(points: tuple[TrackPoint, ...]) -> str:
    traces = [point.trace for point in points if point.trace is not None]
    if len(traces) < 2:
        return ""
    first, last = traces[0], traces[-1]
    doubt = (first.standard_error**2 + last.standard_error**2) ** 0.5
    values = f"from {first.with_error} to {last.with_error}"
    if abs(last.value - first.value) <= _CLEAR * doubt:
        return f"The trace went {values}, which is within the error of the estimates."
    return f"The trace {'fell' if last.value < first.value else 'rose'} {values}."


def _overlap_sentence(points: tuple[TrackPoint, ...]) -> str:
    last = points[-1].gradient_overlap
    if last is None:
        return ""
    return (
        f"At the end {last.value:.0%} of the gradient (of its squared norm) is along the {last.num_vectors} sharpest "
        f"directions; for a random vector it would be {last.chance:.2g}."
    )


def _gaps_sentence(track: CurvatureTrack) -> str:
    if not track.gaps:
        return ""
    named = ", ".join(f"{left:,} and {right:,}" for left, right in track.gaps[:3]) + (", .." if track.gaps[3:] else "")
    return f"Nothing was measured between steps {named}: statements about the track refer to its points only."


def _doubt_sentence(points: tuple[TrackPoint, ...]) -> str:
    open_steps = [point.step for point in points if not point.converged]
    if not open_steps:
        return ""
    named = ", ".join(f"{step:,}" for step in open_steps[:5]) + (", .." if len(open_steps) > 5 else "")
    return f"At {len(open_steps)} of {len(points)} points (steps {named}) the eigenvalues have not converged."


def _cost_sentence(track: CurvatureTrack) -> str:
    products = sum(point.num_products for point in track.points)
    work = f"{track.num_points} points, {products:,} Hessian products"
    if track.share is None:
        return f"Measuring took {track.spent:.3g} s: {work}."
    kept = "" if track.share_reached <= track.share else ", more: the training was too short to pay for its points"
    reached = f"Measuring took {track.share_reached:.1%} of {track.seconds:.3g} s; {track.share:.0%} was allowed{kept}"
    return f"{reached}. {work[0].upper()}{work[1:]}."
