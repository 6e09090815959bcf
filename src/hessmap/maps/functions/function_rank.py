"""The rank of the function that a network represents: that of its input-output Jacobians over data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hessmap.curvature import input_output
from hessmap.curvature.finite_field.prime_field import random_prime_field
from hessmap.curvature.finite_field.rank import field_rank
from hessmap.curvature.input_output import JacobianGram, NetworkFunction, exact_function, jacobian_chunks
from hessmap.errors import require
from hessmap.maps.functions.rank_interval import rank_interval
from hessmap.measurement.matrices import EPS, Floats
from hessmap.measurement.numerical_rank import RELATIVE_TOLERANCE
from hessmap.measurement.top_eigenpairs import top_eigenpairs
from hessmap.results import FunctionRank, FunctionRankCertificate, SchattenMeasurement

# Squared singular values are known to 1e-16 of the largest, so that singular values are to 1e-8.
_GRAM_TOLERANCE = 1e-7


def function_rank(
    model: nn.Module,
    inputs: Tensor | NDArray[Any],
    *,
    relative_tolerance: float | None = None,
    certify: bool = False,
    count: int = 20,
    memory_budget: int = 2**30,
    seed: int = 0,
) -> FunctionRank:
    """The ranks of the input-output Jacobians of a model at the inputs, with what bounds the rank of the function.

    The rank at a point counts singular values above ``relative_tolerance`` times the largest one (default
    max(1e-12, n eps)). The largest over the points bounds the Jacobian rank, max over all x, from below. Trained
    networks have full rank at such a threshold, by small singular values: a tolerance of 0.1 asks for the rank up to
    them. ``bottleneck`` is the interval for the bottleneck rank. ``schatten`` compares sum s^(2/L) with ||W||^2 / L
    where Proposition 3 of Jacot 2023 holds (fully connected, slopes of at most 1). With ``certify`` the ranks are also
    found in exact arithmetic (linear and ReLU networks).

    A Jacobian that does not fit ``memory_budget`` is met by products alone: its ``count`` largest singular values.

    >>> function_rank(nn.Sequential(nn.Linear(3, 1), nn.Linear(1, 2)), torch.eye(3)).value
    1
    """
    function = NetworkFunction(model, inputs)
    small, large = sorted((function.input_dim, function.output_dim))
    is_complete = 24 * small * large <= memory_budget
    values, road = _singular_values(function) if is_complete else _top_singular_values(function, count, seed)
    default = max(RELATIVE_TOLERANCE if is_complete else _GRAM_TOLERANCE, large * EPS)
    tolerance = default if relative_tolerance is None else float(relative_tolerance)
    require(0 < tolerance < 1, "relative_tolerance must lie between 0 and 1", f"got {tolerance}")
    ranks, gaps = _counted(values, tolerance)
    certificate = _certificate(function, seed) if certify else None
    return FunctionRank(
        value=int(ranks.max()),
        ranks=ranks,
        gaps=gaps,
        singular_values=values,
        relative_tolerance=tolerance,
        num_samples=function.num_samples,
        input_dim=function.input_dim,
        output_dim=function.output_dim,
        road=road,
        is_complete=is_complete,
        bottleneck=rank_interval(function, int(ranks.max()), tolerance, certificate),
        schatten=_schatten(function, values),
        certificate=certificate,
        provenance=function.provenance,
    )


def certified_function_rank(
    model: nn.Module, inputs: Tensor | NDArray[Any], *, seed: int = 0
) -> FunctionRankCertificate:
    """The exact ranks of the Jacobians of this network at these points: no threshold.

    For chains of linear layers, convolutions and pools with identity, ReLU, leaky ReLU or polynomial activations. At a
    kink the derivative is torch's, and ties are counted.

    >>> model = nn.Sequential(nn.Linear(3, 1), nn.ReLU(), nn.Linear(1, 2))
    >>> certified_function_rank(model, torch.eye(3)).value <= 1
    True
    """
    return _certificate(NetworkFunction(model, inputs), seed)


def input_jacobians(model: nn.Module, inputs: Tensor | NDArray[Any]) -> Tensor:
    """doutput/dinput of every sample, shape (num_samples, output_dim, input_dim), in float64.

    >>> input_jacobians(nn.Linear(3, 2), torch.zeros(5, 3)).shape
    torch.Size([5, 2, 3])
    """
    return input_output.input_jacobians(NetworkFunction(model, inputs))


def _singular_values(function: NetworkFunction) -> tuple[Floats, str]:
    parts, roads = [], []
    for jacobians, road in jacobian_chunks(function):
        roads.append(road)
        must, got = "activations must be finite", "a Jacobian holds NaN or inf"
        require(bool(torch.isfinite(jacobians).all()), must, got, "Look for weights or inputs that are too large")
        parts.append(torch.linalg.svdvals(jacobians).numpy())
    return np.concatenate(parts), roads[0]


def _top_singular_values(function: NetworkFunction, count: int, seed: int) -> tuple[Floats, str]:
    wanted = min(count, function.input_dim, function.output_dim)
    rows = []
    for place in range(function.num_samples):
        found = top_eigenpairs(JacobianGram(function, place), wanted, tolerance=1e-13, seed=seed)
        rows.append(np.sqrt(np.maximum(found.eigenvalues, 0.0)))
    return np.stack(rows), f"products, {wanted} largest"


def _counted(values: Floats, tolerance: float) -> tuple[NDArray[np.int64], Floats]:
    """Ranks and gaps; a Jacobian of zeros has rank 0."""
    ranks = (values > tolerance * values[:, :1]).sum(axis=1)
    rows = np.arange(len(values))
    padded = np.concatenate([values, np.zeros((len(values), 1))], axis=1)
    kept, dropped = padded[rows, np.maximum(ranks - 1, 0)], padded[rows, ranks]
    gaps = np.full(len(values), np.inf)
    np.divide(kept, dropped, out=gaps, where=(dropped > 0) & (ranks > 0))
    return ranks.astype(np.int64), gaps


def _schatten(function: NetworkFunction, values: Floats) -> SchattenMeasurement | None:
    """Singular values within their error bound count as zero: their powers 2/L would not be small."""
    layers = input_output.affine_layers(function.model)
    if layers is None:
        return None
    depth = len(layers)
    norm = sum(float(p.square().sum()) for layer in layers for p in layer.parameters())
    floor = max(function.input_dim, function.output_dim) * EPS * values[:, :1]
    powers = np.where(values > floor, values, 0.0) ** (2.0 / depth)
    return SchattenMeasurement(depth, norm, powers.sum(axis=1))


def _certificate(function: NetworkFunction, seed: int) -> FunctionRankCertificate:
    generator = np.random.default_rng(seed)
    field = random_prime_field(generator)
    exact = exact_function(function, field)
    found = [field_rank(jacobian, generator) for jacobian in exact.jacobians()]
    ranks = np.array([rank.value for rank in found], dtype=np.int64)
    doubt = min(1.0, sum(rank.failure_bound for rank in found))
    return FunctionRankCertificate(int(ranks.max()), ranks, field.prime, doubt, exact.num_ties)
