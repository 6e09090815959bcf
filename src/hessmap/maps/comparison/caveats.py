"""What differs between two maps apart from the weights, and what that forbids: in words."""

from __future__ import annotations

from collections.abc import Sequence

from hessmap.results.map_comparison import MapIdentity
from hessmap.results.maps import LayerCurvature


def caveats(
    old: MapIdentity, new: MapIdentity, old_layers: Sequence[LayerCurvature], new_layers: Sequence[LayerCurvature]
) -> tuple[str, ...]:
    """The sentences, most important first; none for two checkpoints of one model on the same data."""
    sentences = (_architecture(old, new, old_layers, new_layers), _loss(old, new), _data(old, new))
    return tuple(text for text in sentences if text)


def _architecture(
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


def _loss(old: MapIdentity, new: MapIdentity) -> str:
    if old.loss == new.loss:
        return ""
    return (
        f"The losses differ: {old.loss} and {new.loss}. Risks, norms, eigenvalues and traces are in different units "
        "and have no ratio; ranks and shares can be compared."
    )


def _data(old: MapIdentity, new: MapIdentity) -> str:
    """Data are told apart by the hash of their content; where there is none, nothing is claimed but the doubt."""
    if not (old.data_hash and new.data_hash):
        return "It is not known whether the two were made on the same data."
    if old.data_hash == new.data_hash:
        return ""
    counts = f" ({old.num_samples:,} and {new.num_samples:,} samples)" if old.num_samples != new.num_samples else ""
    return f"The data differ{counts}: what changed may come from the data as well as from the weights."
