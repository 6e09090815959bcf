"""A network layer by layer: how many dimensions its representations have, and which layers do nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hessmap.curvature.input_output import NetworkFunction, Representation, is_chain, representations
from hessmap.errors import require
from hessmap.measurement.matrices import EPS, Floats
from hessmap.results import BottleneckView, LayerRepresentation, RankRange
from hessmap.results.functions import robust_rank

# A layer is called an approximate identity if its nonlinearity and its change of geometry are below this.
IDENTITY_TOLERANCE = 0.05
_COUNTED_SAMPLES = 2000


def bottleneck_view(
    model: nn.Module, inputs: Tensor | NDArray[Any], *, relative_tolerance: float = 0.1
) -> BottleneckView:
    """Singular values of the representations and weights of every layer, and where the function is narrow.

    Centred and uncentred ranks differ by the mean direction: a representation that varies in k dimensions around a
    mean has uncentred rank k + 1. The default tolerance, a tenth of the largest singular value, is coarse: it finds
    bottlenecks of trained networks, in which nothing is exactly zero. A centred rank of one less than the number of
    different samples is theirs, not the layer's: such a layer is marked and is no bottleneck.

    >>> view = bottleneck_view(nn.Sequential(nn.Linear(3, 1), nn.Tanh(), nn.Linear(1, 4)), np.eye(3))
    >>> [layer.centred_rank for layer in view.layers], view.bottlenecks
    ([1, 1], ('0',))
    """
    require(0 < relative_tolerance < 1, "relative_tolerance must lie between 0 and 1", f"got {relative_tolerance}")
    function = NetworkFunction(model, inputs)
    found = representations(function)
    measured = [_layer(item, relative_tolerance, is_last=place == len(found) - 1) for place, item in enumerate(found)]
    most = max(layer.centred_rank for layer in measured) + 2
    distinct = num_distinct(function.inputs, relative_tolerance, at_most=max(_COUNTED_SAMPLES, most))
    layers = tuple(
        replace(layer, is_limited_by_samples=distinct - 1 <= layer.centred_rank < layer.width) for layer in measured
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
        num_distinct=distinct,
        provenance=function.provenance,
    )


def singular_values(matrix: Floats) -> Floats:
    return np.asarray(scipy.linalg.svdvals(matrix, check_finite=False))


def centred_singular_values(matrix: Floats) -> Floats:
    return singular_values(matrix - matrix.mean(axis=0))


def count_above(values: Floats, relative_tolerance: float) -> int:
    """How many values exceed the tolerance times the largest.

    >>> count_above(np.array([2.0, 1.0, 0.1]), 0.1)
    2
    """
    return int((values > relative_tolerance * values.max(initial=0.0)).sum())


def robust_rank_of(values: Floats, relative_tolerance: float, shape: tuple[int, ...]) -> RankRange | None:
    """The rank by these singular values of a matrix that holds over a range of tolerances near the given one."""
    largest = float(values.max(initial=0.0))
    return robust_rank(values / largest, relative_tolerance, max(shape) * EPS) if largest else None


def num_distinct(samples: Tensor, relative_tolerance: float, at_most: int) -> int:
    """How many samples differ by more than a tenth of the tolerance, of the root mean square distance from their mean;
    counted up to ``at_most``.

    >>> num_distinct(torch.eye(3).double().repeat(50, 1), 0.1, at_most=100)
    3
    """
    rows = torch.unique(samples.flatten(1), dim=0)
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]  # sorted ones lie together
    radius = 0.1 * relative_tolerance * float((rows - rows.mean(0)).square().sum(1).mean().sqrt())
    kept = rows[:0]
    for part in torch.split(rows, 256):
        new = part[(_distances(part, kept) > radius).all(dim=1)]
        is_near = torch.triu(_distances(new, new) <= radius, diagonal=1)
        for place in range(len(new)):  # whoever lies near one that counts does not count
            if is_near[:place, place].any():
                is_near[place] = False
        kept = torch.cat([kept, new[~is_near.any(dim=0)]])
        if len(kept) >= at_most:
            break
    return min(len(kept), at_most)


def _distances(one: Tensor, other: Tensor) -> Tensor:
    """By differences: inner products lose half of the digits between near points."""
    return torch.cdist(one, other, compute_mode="donot_use_mm_for_euclid_dist")


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
