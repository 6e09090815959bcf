"""A network layer by layer: ranks of its representations, balance of its weights, whether the samples suffice."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hessmap.errors import UnsupportedNetwork, require, sentence
from hessmap.functions import NetworkFunction, Representation, is_chain, representations
from hessmap.linalg import centred_singular_values, count_above, singular_values
from hessmap.measurement import EPS, Floats
from hessmap.networks import Rules, activation_kind, sequential_layers
from hessmap.records import BalanceMeasurement, BottleneckView, LayerRepresentation, RankRange, robust_rank


def is_rank_of_samples(after: Floats, rank: int, distinct: Tensor, relative_tolerance: float) -> bool:
    """Whether the centred rank of a representation (samples, width) may be that of the samples, not of the layer.

    ``distinct`` are the rows of different samples. k of them span k - 1 dimensions at most. Up to twice as many samples
    as units, a rank is the layer's only where each half of the samples shows it and could have shown one more: else it
    may still grow with their number.

    >>> import numpy as np
    >>> line = np.outer(np.arange(8.0), np.ones(5))
    >>> is_rank_of_samples(line, 1, torch.arange(8), 0.1), is_rank_of_samples(np.eye(8), 7, torch.arange(8), 0.1)
    (False, True)
    """
    width, count = after.shape[1], len(distinct)
    if rank >= width or count > 2 * width + 1:
        return False
    if rank >= count // 2 - 1:
        return True
    halves = (after[part.numpy()] for part in torch.tensor_split(distinct, 2))
    return any(count_above(centred_singular_values(half), relative_tolerance) < rank for half in halves)


def distinct_samples(samples: Tensor, relative_tolerance: float, at_most: int) -> Tensor:
    """Rows, in a random order, of samples that differ by more than a tenth of the tolerance, of the root mean square
    distance from their mean; no more than ``at_most``.

    >>> len(distinct_samples(torch.eye(3).double().repeat(50, 1), 0.1, at_most=100))
    3
    """
    rows, places = torch.unique(samples.flatten(1), dim=0, return_inverse=True)
    first = torch.zeros(len(rows), dtype=torch.long, device=places.device)
    first[places] = torch.arange(len(places), device=places.device)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))  # sorted ones lie together
    rows, first = rows[order], first[order]
    radius = 0.1 * relative_tolerance * float((rows - rows.mean(0)).square().sum(1).mean().sqrt())
    kept = order[:0]
    for part in torch.split(torch.arange(len(rows)), 256):
        new = part[(_distances(rows[part], rows[kept]) > radius).all(dim=1)]
        is_near = torch.triu(_distances(rows[new], rows[new]) <= radius, diagonal=1)
        for place in range(len(new)):  # points near one that counts do not count
            if is_near[:place, place].any():
                is_near[place] = False
        kept = torch.cat([kept, new[~is_near.any(dim=0)]])
        if len(kept) >= at_most:
            break
    return first[kept[:at_most]]


def _distances(one: Tensor, other: Tensor) -> Tensor:
    """By differences: inner products lose half of the digits between near points."""
    return torch.cdist(one, other, compute_mode="donot_use_mm_for_euclid_dist")


_RULES = Rules("balance needs a sequence of linear layers with homogeneous activations", "")


def balance(model: nn.Module) -> BalanceMeasurement:
    """Compute the balance defects of a network: D_l = ||W_(l+1)||^2 - ||W_l||^2 - ||b_l||^2.

    Args:
        model: A sequential network with homogeneous activations.

    Returns:
        BalanceMeasurement: The defect of each pair of neighbouring layers, and of each hidden unit.

    Notes:
        Zero at every local minimum of a loss with an l2 penalty on all parameters, for homogeneous activations.
        Reference: Jacot 2023, Proposition 12 and Remark 6.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
        >>> for weight, value in zip(model.parameters(), (1.0, 3.0)):
        ...     _ = nn.init.constant_(weight, value)
        >>> balance(model).defects.tolist()
        [8.0]
    """
    layers = []
    for name, layer in sequential_layers(model, _RULES):
        if isinstance(layer, nn.Linear) and type(layer) is nn.Linear:
            layers.append((name, layer))
        elif not _is_homogeneous(layer):
            raise UnsupportedNetwork(sentence(_RULES.must, f"layer {name} is {type(layer).__name__}"))
    if len(layers) < 2:
        raise UnsupportedNetwork(sentence("balance needs at least two linear layers", f"there are {len(layers)}"))
    squares = [_squares(layer) for _, layer in layers]
    units = tuple(leaving - entering for (entering, _), (_, leaving) in pairwise(squares))
    defects = np.array([unit.sum() for unit in units])
    scale = max(float(entering.sum()) for entering, _ in squares)
    return BalanceMeasurement(
        names=tuple(name for name, _ in layers),
        defects=defects,
        unit_defects=units,
        relative=float(np.abs(defects).max()) / scale if scale else 0.0,
        largest_unit_defect=max(float(np.abs(unit).max()) for unit in units),
    )


def _squares(layer: nn.Linear) -> tuple[Floats, Floats]:
    """Of every output unit ||row||^2 + bias^2, and of every input unit ||column||^2."""
    weight = layer.weight.detach().double().numpy()
    bias = 0.0 if layer.bias is None else layer.bias.detach().double().numpy()
    return np.square(weight).sum(axis=1) + np.square(bias), np.square(weight).sum(axis=0)


def _is_homogeneous(layer: nn.Module) -> bool:
    kind = activation_kind(layer)
    return type(layer) in (nn.Flatten, nn.Dropout) or (kind is not None and kind.is_homogeneous)


# A layer is called an approximate identity if its nonlinearity and its change of geometry are below this.
IDENTITY_TOLERANCE = 0.05
_COUNTED_SAMPLES = 2000


def bottleneck_view(
    model: nn.Module, inputs: Tensor | NDArray[Any], *, relative_tolerance: float = 0.1
) -> BottleneckView:
    """Compute singular values of the representations and weights of every layer, and where the function is narrow.

    Args:
        model: A sequential network.
        inputs: Samples, one per row.
        relative_tolerance: Singular values below this fraction of the largest do not count. Defaults to 0.1, which is
            coarse: it finds bottlenecks of trained networks, in which no singular value is exactly zero.

    Returns:
        BottleneckView: A row per layer, and the names of the bottlenecks.

    Notes:
        Centred and uncentred ranks differ by the mean direction: a representation that varies in k dimensions around
        a mean has uncentred rank k + 1. A centred rank that may be that of a few samples (``is_rank_of_samples``) is
        not the layer's: such a layer is marked and is not a bottleneck.

    Example:
        >>> view = bottleneck_view(nn.Sequential(nn.Linear(3, 1), nn.Tanh(), nn.Linear(1, 4)), np.eye(3))
        >>> [layer.centred_rank for layer in view.layers], view.bottlenecks
        ([1, 1], ('0',))
    """
    require(0 < relative_tolerance < 1, "relative_tolerance must be between 0 and 1", f"got {relative_tolerance}")
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
