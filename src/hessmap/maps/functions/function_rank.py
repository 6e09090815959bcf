"""The rank of the function that a network represents: that of its input-output Jacobians over data, and between what
its bottleneck rank lies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hessmap import functions as input_output
from hessmap.errors import UnsupportedNetwork, require
from hessmap.exact import field_rank, random_prime_field
from hessmap.functions import (
    JacobianGram,
    NetworkFunction,
    Representation,
    exact_function,
    function_off_kinks,
    is_chain,
    jacobian_chunks,
    representations,
)
from hessmap.linalg import centred_singular_values
from hessmap.maps.functions.bottleneck import distinct_samples, is_rank_of_samples, robust_rank_of
from hessmap.measurement import EPS, RELATIVE_TOLERANCE, Floats, top_eigenpairs
from hessmap.records import (
    GRAM_ERROR,
    FunctionRank,
    FunctionRankCertificate,
    RankInterval,
    SchattenMeasurement,
    SideKind,
)


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
    """Compute the ranks of the input-output Jacobians of a model, and bounds on the rank of its function.

    Args:
        model: The model.
        inputs: Samples, one per row.
        relative_tolerance: Singular values below this fraction of the largest do not count. Default: max(1e-12, n eps).
            Trained networks have full rank at that threshold, by small singular values; 0.1 gives the rank up to them.
        certify: Also compute the ranks in exact arithmetic (linear and ReLU networks). Defaults to False.
        count: Number of singular values of a Jacobian that does not fit in ``memory_budget``. Defaults to 20.
        memory_budget: Bytes for a Jacobian. Defaults to 1 GiB.
        seed: Seed of iterations and primes. Defaults to 0.

    Returns:
        FunctionRank: The largest rank over the samples, a lower bound on the Jacobian rank; ``distribution`` counts the
        samples of each rank, ``robust_rank`` gives the tolerances over which it stays, ``bottleneck`` the interval of
        the bottleneck rank.

    Notes:
        ``schatten`` compares sum s^(2/L) with ||W||^2 / L where Proposition 3 of Jacot 2023 applies (fully connected,
        slopes of at most 1). At a kink, which has no Jacobian, that of a nearby point is used (``num_kinks``).

    Example:
        >>> function_rank(nn.Sequential(nn.Linear(3, 1), nn.Linear(1, 2)), torch.eye(3)).value
        1
    """
    function, num_kinks = function_off_kinks(NetworkFunction(model, inputs), seed)
    small, large = sorted((function.input_dim, function.output_dim))
    is_complete = 24 * small * large <= memory_budget
    values, method = _singular_values(function) if is_complete else _top_singular_values(function, count, seed)
    default = max(RELATIVE_TOLERANCE if is_complete else 10 * GRAM_ERROR, large * EPS)
    tolerance = default if relative_tolerance is None else float(relative_tolerance)
    require(0 < tolerance < 1, "relative_tolerance must be between 0 and 1", f"got {tolerance}")
    ranks, gaps = _ranks_and_gaps(values, tolerance)
    certificate = _certificate(function, seed) if certify else None
    found = FunctionRank(
        value=int(ranks.max()),
        ranks=ranks,
        gaps=gaps,
        singular_values=values,
        relative_tolerance=tolerance,
        num_samples=function.num_samples,
        input_dim=function.input_dim,
        output_dim=function.output_dim,
        method=method,
        is_complete=is_complete,
        schatten=_schatten(function, values),
        certificate=certificate,
        num_kinks=num_kinks,
        provenance=function.provenance,
    )
    return replace(found, bottleneck=_rank_interval(function, found))


def certified_function_rank(
    model: nn.Module, inputs: Tensor | NDArray[Any], *, seed: int = 0
) -> FunctionRankCertificate:
    """Compute the exact ranks of the Jacobians of a network at given points, without a threshold.

    Args:
        model: A sequential network of linear layers, convolutions and pools with identity, ReLU, leaky ReLU or
            polynomial activations.
        inputs: The points, one per row.
        seed: Seed of the random prime. Defaults to 0.

    Returns:
        FunctionRankCertificate: The largest rank, with a bound on the probability that it is too small.

    Notes:
        At a kink (ties are counted) there is no derivative. A nearby point is used instead, around which the network
        is proved to be smooth, so that every rank is that of a true derivative in a neighbourhood.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 1), nn.ReLU(), nn.Linear(1, 2))
        >>> certified_function_rank(model, torch.eye(3)).value <= 1
        True
    """
    return _certificate(NetworkFunction(model, inputs), seed)


def input_jacobians(model: nn.Module, inputs: Tensor | NDArray[Any]) -> Tensor:
    """Compute the Jacobian of the outputs in the inputs for every sample.

    Args:
        model: The model.
        inputs: Samples, one per row.

    Returns:
        Tensor: Shape (num_samples, output_dim, input_dim), in float64.

    Example:
        >>> input_jacobians(nn.Linear(3, 2), torch.zeros(5, 3)).shape
        torch.Size([5, 2, 3])
    """
    return input_output.input_jacobians(NetworkFunction(model, inputs))


def _singular_values(function: NetworkFunction) -> tuple[Floats, str]:
    parts, methods = [], []
    for jacobians, method in jacobian_chunks(function):
        methods.append(method)
        must, got = "activations must be finite", "a Jacobian holds NaN or inf"
        require(bool(torch.isfinite(jacobians).all()), must, got, "Look for weights or inputs that are too large")
        parts.append(torch.linalg.svdvals(jacobians).numpy())
    return np.concatenate(parts), methods[0]


def _top_singular_values(function: NetworkFunction, count: int, seed: int) -> tuple[Floats, str]:
    wanted = min(count, function.input_dim, function.output_dim)
    rows = []
    for place in range(function.num_samples):
        found = top_eigenpairs(JacobianGram(function, place), wanted, tolerance=1e-13, seed=seed)
        rows.append(np.sqrt(np.maximum(found.eigenvalues, 0.0)))
    return np.stack(rows), f"products, {wanted} largest"


def _ranks_and_gaps(values: Floats, tolerance: float) -> tuple[NDArray[np.int64], Floats]:
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
    with np.errstate(over="ignore"):  # beyond the range of numbers it is infinite
        powers = np.where(values > floor, values, 0.0) ** (2.0 / depth)
    return SchattenMeasurement(depth, norm, powers.sum(axis=1))


def _certificate(function: NetworkFunction, seed: int) -> FunctionRankCertificate:
    generator = np.random.default_rng(seed)
    field = random_prime_field(generator)
    exact = exact_function(function, field, seed)
    found = [field_rank(jacobian, generator) for jacobian in exact.jacobians()]
    ranks = np.array([rank.value for rank in found], dtype=np.int64)
    ranks[exact.is_on_kink] = 0
    doubt = min(1.0, sum(rank.failure_bound for rank in found))
    num_moved, num_uncertified = int(exact.is_moved.sum()), int(exact.is_on_kink.sum())
    return FunctionRankCertificate(
        int(ranks.max()), ranks, field.prime, doubt, exact.num_ties, num_moved, num_uncertified
    )


def _rank_interval(function: NetworkFunction, found: FunctionRank) -> RankInterval:
    """Jacobian rank <= bottleneck rank <= the dimension of any representation that the function passes through.

    Below: the certified rank, else the robust rank of the Jacobians, else that at the tolerance. Above: the narrowest
    width of the architecture, or the affine dimension of a representation over the data where that is smaller, robust,
    and the samples are enough to tell (``is_rank_of_samples``), and not less than the Jacobian spans at one of them,
    as where units are active on few samples. Only sequences of layers pass through each.
    Reference: Jacot 2023, Proposition 1.
    """
    robust, certificate, tolerance = found.robust_rank, found.certificate, found.relative_tolerance
    lower_kind: SideKind = "measurement" if certificate is None else "certificate"
    lower = found.value if robust is None else robust.value
    lower = lower if certificate is None else certificate.value
    sizes = {"inputs": function.input_dim, "outputs": function.output_dim}
    measured: dict[str, int] = {}
    layers = _layers(function)
    most = 2 * max((layer.after.shape[1] for layer in layers), default=0) + 2
    distinct = distinct_samples(function.inputs, tolerance, most).cpu()
    for layer in layers:
        after, width = layer.after.numpy(), layer.after.shape[1]
        sizes[layer.name] = min(width, sizes.get(layer.name, width))
        dimension = robust_rank_of(centred_singular_values(after), tolerance, after.shape)
        if dimension is None or not lower <= dimension.value < width:
            continue
        if not is_rank_of_samples(after, dimension.value, distinct, tolerance):
            measured[layer.name] = min(dimension.value, measured.get(layer.name, dimension.value))
    place = min(sizes, key=sizes.__getitem__)
    best = min(measured, key=measured.__getitem__) if measured else place
    if measured and measured[best] < sizes[place]:
        return RankInterval(lower, lower_kind, measured[best], "measurement", best)
    return RankInterval(lower, lower_kind, sizes[place], "theorem", place)


def _layers(function: NetworkFunction) -> list[Representation]:
    if not is_chain(function):
        return []
    try:
        return representations(function)
    except UnsupportedNetwork:
        return []
