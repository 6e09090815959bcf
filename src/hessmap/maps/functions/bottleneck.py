"""A network layer by layer: how many dimensions its representations have, and which layers do nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from hessmap.errors import require
from hessmap.functions import NetworkFunction, Representation, is_chain, representations
from hessmap.linalg import centred_singular_values, count_above, singular_values
from hessmap.maps.functions.enough_samples import distinct_samples, is_rank_of_samples
from hessmap.measurement import EPS, Floats
from hessmap.records import BottleneckView, LayerRepresentation, RankRange, robust_rank

# A layer is called an approximate identity if its nonlinearity and its change of geometry are below this.
IDENTITY_TOLERANCE = 0.05
_COUNTED_SAMPLES = 2000


def bottleneck_view(
    model: nn.Module, inputs: Tensor | NDArray[Any], *, relative_tolerance: float = 0.1
) -> BottleneckView:
    """Singular values of the representations and weights of every layer, and where the function is narrow.

    Centred and uncentred ranks differ by the mean direction: a representation that varies in k dimensions around a
    mean has uncentred rank k + 1. The default tolerance, a tenth of the largest singular value, is coarse: it finds
    bottlenecks of trained networks, in which nothing is exactly zero. A centred rank that may be that of a few samples
    (``is_rank_of_samples``) is not the layer's: such a layer is marked and is no bottleneck.

    >>> view = bottleneck_view(nn.Sequential(nn.Linear(3, 1), nn.Tanh(), nn.Linear(1, 4)), np.eye(3))
    >>> [layer.centred_rank for layer in view.layers], view.bottlenecks
    ([1, 1], ('0',))
    """
    require(0 < relative_tolerance < 1, "relative_tolerance must lie between 0 and 1", f"got {relative_tolerance}")
    function = NetworkFunction(model, inputs)
    found = representations(function)
    measured = [_layer(item, relative_tolerance, is_last=place == len(found) - 1) for place, item in enumerate(found)]
    most = max(_COUNTED_SAMPLES, 2 * max(layer.width for layer in measured) + 2)
    distinct = distinct_samples(function.inputs, relative_tolerance, most).cpu()
    are_limited = (
        is_rank_of_samples(item.after.numpy(), layer.centred_rank, distinct, relative_tolerance)
        for item, layer in zip(found, measured, strict=True)
    )
    layers = tuple(
        replace(layer, is_limited_by_samples=limited) for layer, limited in zip(measured, are_limited, strict=True)
    )
    telling = [layer for layer in layers[:-1] or layers if not layer.is_limited_by_samples]
    least = min((layer.centred_rank for layer in telling), default=0)
    return BottleneckView(
        layers=layers,
        bottlenecks=tuple(layer.name for layer in telling if layer.centred_rank == least),
        identities=tuple(layer.name for layer in layers if layer.is_approximate_identity),
        relative_tolerance=relative_tolerance,
        num_samples=function.num_samples,
        is_chain=is_chain(function),
        num_distinct=len(distinct),
        provenance=function.provenance,
    )


def robust_rank_of(values: Floats, relative_tolerance: float, shape: tuple[int, ...]) -> RankRange | None:
    """The rank by these singular values of a matrix that holds over a range of tolerances near the given one."""
    largest = float(values.max(initial=0.0))
    return robust_rank(values / largest, relative_tolerance, max(shape) * EPS) if largest else None


def effective_rank(values: Floats) -> float:
    """exp of the entropy of the normalised singular values (Roy & Vetterli 2007); 0 for zeros.

    >>> round(effective_rank(np.array([1.0, 1.0, 0.0])), 12)
    2.0
    """
    shares = values[values > 0] / values.sum() if values.sum() > 0 else np.zeros(0)
    return float(np.exp(-(shares * np.log(shares)).sum())) if shares.size else 0.0


def stable_rank(values: Floats) -> float:
    """||Z||_F^2 / ||Z||^2.

    >>> stable_rank(np.array([2.0, 1.0]))
    1.25
    """
    largest = float(values.max(initial=0.0))
    return float(np.square(values / largest).sum()) if largest else 0.0


def in_own_unit(values: Floats) -> Floats:
    """Values over the largest of them, whose squares neither vanish nor overflow.

    >>> in_own_unit(np.array([2e-200, -4e-200]))
    array([ 0.5, -1. ])
    """
    largest = float(np.abs(values).max(initial=0.0))
    return values / largest if largest else values


def similarity(one: Floats, other: Floats) -> float:
    """Centred linear alignment (CKA, Kornblith et al. 2019) of two representations; 0 if one is constant."""
    first, second = (in_own_unit(values - values.mean(axis=0)) for values in (one, other))
    grams = first @ first.T, second @ second.T
    size = float(np.linalg.norm(grams[0]) * np.linalg.norm(grams[1]))
    return float((grams[0] * grams[1]).sum()) / size if size else 0.0


def _layer(item: Representation, tolerance: float, is_last: bool) -> LayerRepresentation:
    after, before = item.after.numpy(), item.before.numpy()
    plain, centred = singular_values(after), centred_singular_values(after)
    impact = None
    if not is_last and after.shape == before.shape:
        unit = float(np.abs(before).max(initial=0.0)) or 1.0
        size = float(np.linalg.norm(before / unit))
        impact = float(np.linalg.norm((before - after) / unit)) / size if size else 0.0
    alike = similarity(item.entering.numpy(), after)
    return LayerRepresentation(
        name=item.name,
        width=after.shape[1],
        singular_values=plain,
        centred_singular_values=centred,
        weight_singular_values=singular_values(item.weight.numpy()),
        rank=count_above(plain, tolerance),
        centred_rank=count_above(centred, tolerance),
        effective_rank=effective_rank(centred),
        stable_rank=stable_rank(centred),
        nonlinearity=impact,
        similarity=alike,
        is_approximate_identity=impact is not None and impact <= IDENTITY_TOLERANCE and alike >= 1 - IDENTITY_TOLERANCE,
    )
