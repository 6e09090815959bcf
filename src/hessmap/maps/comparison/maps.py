"""What changed from one map to another, per Hessian and per layer, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hessmap.maps.comparison.verdicts import verdicts
from hessmap.results import PARTS
from hessmap.results.map_comparison import FactorChange, LayerChange, MapComparison, MapIdentity, PartChange, change
from hessmap.results.maps import CurvatureMap, FactorCurvature, LayerCurvature, NetworkCurvature


def compare_maps(old: CurvatureMap, new: CurvatureMap, old_name: str = "old", new_name: str = "new") -> MapComparison:
    """Hold a new map of a network against an old one, two checkpoints of a model for example.

    Maps of different architectures, data or losses are compared as far as they can be; ``caveats`` of the result
    says how far that is. Directions are not compared: a map holds no eigenvectors.

    >>> import hessmap as hm
    >>> data = hm.datasets.gaussian(30, 6, output_dim=3)
    >>> old, new = (hm.map(hm.FullyConnected((6, 4, 3)).build(seed=seed), data, loss="squared") for seed in (0, 1))
    >>> [change.name for change in compare_maps(old, new).layers]
    ['0', '2']
    """
    before, after = old.network, new.network
    one, other = _identity(old, old_name), _identity(new, new_name)
    same_loss = before.loss == after.loss
    dimension = (
        change(before.effective_dimension.value, after.effective_dimension.value, same_loss)
        if before.num_samples == after.num_samples
        else None
    )
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
        caveats=caveats(one, other, before.layers, after.layers),
        verdicts=verdicts(risk, gradient, parts, layers, same_loss),
    )


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
    for name in PARTS:
        old, new = before[name], after[name]
        yield PartChange(
            part=name,
            rank=change(old.rank, new.rank),
            norm=change(old.spectrum.norm, new.spectrum.norm, same_loss),
            is_decidable=all(part.certificate is not None or part.measurement.decidable for part in (old, new)),
        )


def _layer_changes(before: NetworkCurvature, after: NetworkCurvature, same_loss: bool) -> Iterator[LayerChange]:
    found = {(layer.name, layer.shape): layer for layer in after.layers}
    for old in before.layers:
        new = found.get((old.name, old.shape))
        if new is not None:
            yield _layer_change(old, new, same_loss)


def _layer_change(old: LayerCurvature, new: LayerCurvature, same_loss: bool) -> LayerChange:
    return LayerChange(
        name=old.name,
        shape=old.shape,
        num_parameters=old.num_parameters,
        rank=change(old.rank.value, new.rank.value),
        top_eigenvalue=change(old.top_eigenvalue, new.top_eigenvalue, same_loss),
        trace=change(old.trace, new.trace, same_loss),
        curvature_share=change(old.curvature_share, new.curvature_share),
        is_decidable=old.rank.decidable and new.rank.decidable,
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
        kronecker_overlap=change(old.kronecker_overlap, new.kronecker_overlap),
    )


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
