"""A network layer by layer: how many dimensions its representations have, and which layers do nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from torch import Tensor, nn

from hessmap.curvature.input_output import NetworkFunction, Representation, is_chain, representations
from hessmap.errors import require
from hessmap.measurement.matrices import Floats
from hessmap.results import BottleneckView, LayerRepresentation

# A layer is called an approximate identity if its nonlinearity and its change of geometry are below this.
IDENTITY_TOLERANCE = 0.05


def bottleneck_view(
    model: nn.Module, inputs: Tensor | NDArray[Any], *, relative_tolerance: float = 0.1
) -> BottleneckView:
    """Singular values of the representations and weights of every layer, and where the function is narrow.

    Centred and uncentred ranks differ by the mean direction: a representation that varies in k dimensions around a
    mean has uncentred rank k + 1. The default tolerance, a tenth of the largest singular value, is coarse: it finds
    bottlenecks of trained networks, in which nothing is exactly zero.

    >>> view = bottleneck_view(nn.Sequential(nn.Linear(3, 1), nn.Tanh(), nn.Linear(1, 4)), np.eye(3))
    >>> [layer.centred_rank for layer in view.layers], view.bottlenecks
    ([1, 1], ('0',))
    """
    require(0 < relative_tolerance < 1, "relative_tolerance must lie between 0 and 1", f"got {relative_tolerance}")
    function = NetworkFunction(model, inputs)
    found = representations(function)
    layers = tuple(
        _layer(item, relative_tolerance, is_last=place == len(found) - 1) for place, item in enumerate(found)
    )
    hidden = layers[:-1] or layers
    least = min(layer.centred_rank for layer in hidden)
    return BottleneckView(
        layers=layers,
        bottlenecks=tuple(layer.name for layer in hidden if layer.centred_rank == least),
        identities=tuple(layer.name for layer in layers if layer.is_approximate_identity),
        relative_tolerance=relative_tolerance,
        num_samples=function.num_samples,
        is_chain=is_chain(function),
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


def similarity(one: Floats, other: Floats) -> float:
    """Centred linear alignment (CKA, Kornblith et al. 2019) of two representations; 0 if one is constant."""
    first, second = one - one.mean(axis=0), other - other.mean(axis=0)
    grams = first @ first.T, second @ second.T
    size = float(np.linalg.norm(grams[0]) * np.linalg.norm(grams[1]))
    return float((grams[0] * grams[1]).sum()) / size if size else 0.0


def _layer(item: Representation, tolerance: float, is_last: bool) -> LayerRepresentation:
    after, before = item.after.numpy(), item.before.numpy()
    plain, centred = singular_values(after), centred_singular_values(after)
    impact = None
    if not is_last and after.shape == before.shape:
        size = float(np.linalg.norm(before))
        impact = float(np.linalg.norm(before - after)) / size if size else 0.0
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
