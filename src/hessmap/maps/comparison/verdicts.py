"""What to make of two maps, in sentences: each is true or absent."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hessmap.records import HESSIAN_SYMBOLS, Change, LayerChange, PartChange

# A ratio within this of 1 is called equal, of 2 twice, of 1/2 half.
_NEAR = 0.05


def verdicts(
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
    text = f"The largest eigenvalue of H_L, the sharpness of the whole network: {sharpness.old:.3g} → "
    text += f"{sharpness.new:.3g}"
    if sharpness.is_within_error:
        return f"{text}, no more than the errors of the two."
    return f"{text}, {times(sharpness.ratio)} as sharp." if sharpness.ratio is not None else f"{text}."


def _progress_sentence(risk: Change, gradient: Change) -> str:
    direction = "stayed at" if risk.is_unchanged else "fell from" if risk.new < risk.old else "rose from"
    moved = f"{risk.old:.3g}" if risk.is_unchanged else f"{risk.old:.3g} to {risk.new:.3g}"
    return f"The risk {direction} {moved}; the gradient norm went from {gradient.old:.3g} to {gradient.new:.3g}."


def _layer_sentence(layer: LayerChange) -> str:
    top = layer.top_eigenvalue
    if top is None or top.is_within_error:
        return ""
    text = f"Layer {layer.name}: top eigenvalue of its own block {top.old:.3g} → {top.new:.3g}"
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
        return "The layers share the curvature as before, within one percent of the whole."
    moved = [
        f"layer {layer.name} {layer.curvature_share.old:.0%} → {layer.curvature_share.new:.0%}"
        for layer in (gained, lost)
    ]
    return f"Curvature moved between layers: {', '.join(moved)} of the trace of H_o."


def _ranks_sentence(parts: Sequence[PartChange]) -> str:
    if not parts:
        return ""
    changed = [part for part in parts if not part.rank.is_unchanged]
    if not changed:
        return "The ranks of the three Hessians are the same."
    texts = [f"{HESSIAN_SYMBOLS[part.part]} {part.rank.old:,} → {part.rank.new:,}" for part in changed]
    doubtful = [HESSIAN_SYMBOLS[part.part] for part in changed if not part.is_decidable]
    doubt = f" No clear cut for {', '.join(doubtful)}: there the rank depends on the threshold." if doubtful else ""
    return f"Rank: {', '.join(texts)}.{doubt}"
