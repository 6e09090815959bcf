"""All bounds on what the function of a network costs in squared weights, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from hessmap.errors import HessmapError, require
from hessmap.functions import NetworkFunction, affine_layers, plain_layers
from hessmap.maps.functions.function_rank import function_rank, input_jacobians
from hessmap.measurement import numerical_rank
from hessmap.records import CostBound, RankMeasurement, RepresentationCost
from hessmap.theory import functions
from hessmap.theory.functions import as_layers, bounds_on_box

Floats = NDArray[np.float64]
_PASSING = (nn.Identity, nn.Flatten, nn.Dropout)
_PAPER = "Jacot 2023"


def representation_cost(
    model: nn.Module,
    inputs: Tensor | NDArray[Any],
    *,
    relative_tolerance: float = 0.1,
    num_directions: int = 16,
    seed: int = 0,
) -> RepresentationCost:
    """Compute ||W||^2 of a network with every bound on it that applies, each with its source.

    Args:
        model: A sequential network.
        inputs: Samples, one per row.
        relative_tolerance: Singular values of the narrowest weights below this fraction of the largest are dropped.
            Defaults to 0.1.
        num_directions: Random interpolators of rank 1 that give the depths at which rank recovery is expected. Defaults
            to 16.
        seed: Their seed. Defaults to 0.

    Returns:
        RepresentationCost: The squared norm, the bounds, and the depths at which rank recovery is expected, None where
        the singular values have no clear gap.

    Notes:
        "jacobians": L sum s^(2/L) at the steepest sample, a lower bound for every L-layer network with slopes of at
        most 1 that has these Jacobians (Proposition 3 of Jacot 2023). "linear": the least of all linear networks for
        the same map. "path": a lower bound for every L-layer network of bottleneck rank 1 through the same outputs
        (Proposition 10). "deeper": the squared norm of a network of one more layer that computes the same function on
        the box of the inputs.

    Example:
        >>> import torch
        >>> layers = [nn.Linear(2, 2, bias=False) for _ in range(2)]
        >>> for layer in layers:
        ...     _ = nn.init.eye_(layer.weight)
        >>> cost = representation_cost(nn.Sequential(*layers), torch.eye(2))
        >>> cost.squared_norm, round(cost.bound("linear").squared_norm, 9)
        (4.0, 4.0)
    """
    must = "relative_tolerance must be between 0 and 1"
    require(0 < relative_tolerance < 1, must, f"got {relative_tolerance}")
    function = NetworkFunction(model, inputs)
    layers = affine_layers(function.model)
    total = sum(float(part.square().sum()) for part in function.model.parameters())
    must = "the squared norm of the weights must be in the range of float64"
    require(total < float("inf"), must, "it is infinite", "Scale the weights down")
    depth = len(layers) if layers else sum(isinstance(leaf, nn.Linear | nn.Conv2d) for leaf in model.modules())
    own = "this network"
    bounds = [CostBound("weights", total, max(1, depth), "value", "measurement", own, f"{_PAPER}, section 2")]
    if layers is None:
        notes = ("bounds need a sequence of linear layers with slopes of at most 1, which this model is not",)
        return RepresentationCost(max(1, depth), total, tuple(bounds), notes=notes, provenance=function.provenance)
    bounds.append(_from_jacobians(model, inputs))
    notes_of: list[str] = []
    if _is_linear(function.model):
        bounds.append(_of_linear_map(model, inputs, depth))
    path = _result_or_note(notes_of, "path", lambda: _rank_one_bound(function))
    if path is not None:
        bounds.append(_from_path(path, depth))
    found = RepresentationCost(depth, total, tuple(bounds), notes=tuple(notes_of), provenance=function.provenance)
    return _with_construction(found, function, layers, path, relative_tolerance, num_directions, seed)


def _from_jacobians(model: nn.Module, inputs: Any) -> CostBound:
    found = function_rank(model, inputs).schatten
    assert found is not None
    depth = found.num_layers
    which = f"all networks of {depth} layers and slopes of at most 1 with these Jacobians"
    return CostBound(
        "jacobians", depth * found.largest, depth, "lower_bound", "theorem", which, f"{_PAPER}, Proposition 3"
    )


def _is_linear(model: nn.Module) -> bool:
    return all(type(layer) in (nn.Linear, *_PASSING) for layer in plain_layers(model))


def _of_linear_map(model: nn.Module, inputs: Any, depth: int) -> CostBound:
    matrix = input_jacobians(model, inputs[:2])[0].numpy()
    cost = functions.linear_representation_cost(matrix, depth)
    which = f"all linear networks of {depth} layers for the same map; balanced factors attain it"
    return CostBound("linear", cost, depth, "lower_bound", "theorem", which, f"{_PAPER}, section 1")


def _result_or_note(notes: list[str], name: str, work: Callable[[], Any]) -> Any:
    """What the work gives, or None and a note that says why there is nothing."""
    try:
        return work()
    except HessmapError as error:
        notes.append(f"{name} gives no bound: {error}")
        return None


def _rank_one_bound(function: NetworkFunction) -> functions.RankOneBound:
    return functions.rank_one_lower_bound(_flat_inputs(function), function.outputs(function.inputs).numpy())


def _flat_inputs(function: NetworkFunction) -> Floats:
    return np.asarray(function.inputs.flatten(1).numpy())


def _from_path(bound: functions.RankOneBound, depth: int) -> CostBound:
    words = "shortest path" if bound.path.kind == "exact" else "spanning tree, below the shortest path,"
    which = f"all networks of {depth} layers and bottleneck rank 1 through the same outputs ({words} of them)"
    return CostBound(
        "path", bound.squared_norm(depth), depth, "lower_bound", "theorem", which, f"{_PAPER}, Proposition 10"
    )


def _with_construction(
    found: RepresentationCost,
    function: NetworkFunction,
    layers: Sequence[nn.Linear],
    path: functions.RankOneBound | None,
    tolerance: float,
    num_directions: int,
    seed: int,
) -> RepresentationCost:
    """The same with the upper bounds for ReLU networks."""
    if not _is_relu_chain(function.model):
        return replace(found, notes=(*found.notes, "constructions need a ReLU between every two linear layers"))
    plain = as_layers([(layer.weight.numpy(), None if layer.bias is None else layer.bias.numpy()) for layer in layers])
    given, notes = _flat_inputs(function), list(found.notes)
    box = given.min(axis=0), given.max(axis=0)
    fitted = None
    if path is not None:
        fitted = _result_or_note(notes, "rank-1 fits", lambda: _rank_one_constant(function, num_directions, seed))

    def depths(network: Sequence[functions.Layer], rank: int) -> tuple[float, functions.RecoveryDepths | None]:
        constant = functions.cost_constant(network, rank, *box)
        if path is None or fitted is None:
            return constant, None
        least = found.num_layers + 1
        return constant, functions.recovery_depths(rank, constant, fitted, path.slope, least_depth=least)

    rank = _inner_rank(plain, tolerance)
    exact_rank = min(int(np.linalg.matrix_rank(layer.weight)) for layer in plain)
    proved = depths(plain, exact_rank)[1] if exact_rank else None
    made = replace(
        found,
        bounds=(*found.bounds, _deeper_network(plain, *box)),
        inner_rank_measurement=rank,
        proved_depths=None if proved is None else proved.proved,
        notes=tuple(notes),
    )
    if not rank.value or not rank.decidable:
        why = "a weight matrix is zero" if not rank.value else _no_cut(rank, tolerance)
        return replace(made, notes=(*notes, f"no inner rank, and no depths at which it is expected: {why}"))
    truncated = [_low_rank_layer(layer, rank.value, tolerance) for layer in plain]
    constant, expected = depths(truncated, rank.value)
    return replace(
        made,
        inner_rank=rank.value,
        constant=constant,
        function_error=_distance(plain, truncated, *box),
        expected_depths=None if expected is None else expected.expected,
    )


def _is_relu_chain(model: nn.Module) -> bool:
    kinds = [type(layer) for layer in plain_layers(model) if type(layer) not in _PASSING]
    wanted = [nn.Linear if place % 2 == 0 else nn.ReLU for place in range(len(kinds))]
    return kinds == wanted and len(kinds) % 2 == 1


def _deeper_network(layers: Sequence[functions.Layer], low: Floats, high: Floats) -> CostBound:
    depth = len(layers) + 1
    cost = functions.deepened_network(layers, depth, low, high).squared_norm
    which = f"a network of {depth} layers for the same function on the box of the inputs"
    return CostBound("deeper", cost, depth, "upper_bound", "construction", which, f"{_PAPER}, proof of Theorem 1")


def _rank_one_constant(function: NetworkFunction, num_directions: int, seed: int) -> float:
    """The constant of the cheapest interpolator of rank 1 that was built."""
    given, outputs = _flat_inputs(function), function.outputs(function.inputs).numpy()
    directions = list(np.random.default_rng(seed).normal(size=(num_directions, given.shape[1])))
    return functions.rank_one_constant(given, outputs, directions)


def _inner_rank(layers: Sequence[functions.Layer], tolerance: float) -> RankMeasurement:
    """The rank of the narrowest weight matrix; of several, that whose cut is least clear."""
    found = [numerical_rank(layer.weight, relative_tolerance=tolerance) for layer in layers]
    return min(found, key=lambda rank: (rank.value, rank.decidable, rank.gap))


def _no_cut(rank: RankMeasurement, tolerance: float) -> str:
    gap = f"{rank.gap:.3g} times the largest dropped one"
    return (
        f"the singular values of the narrowest weights have no clear cut at {tolerance:g} of the largest "
        f"(the smallest of {rank.value} kept ones is {gap})"
    )


def _low_rank_layer(layer: functions.Layer, rank: int, tolerance: float) -> functions.Layer:
    """The layer without the singular values below the tolerance, if that many are left; otherwise unchanged."""
    left, values, right = np.linalg.svd(layer.weight, full_matrices=False)
    if rank == len(values) or int((values > tolerance * values[0]).sum()) != rank:
        return layer
    return functions.Layer((left[:, :rank] * values[:rank]) @ right[:rank], layer.bias)


def _distance(layers: Sequence[functions.Layer], others: Sequence[functions.Layer], low: Floats, high: Floats) -> float:
    """How far the outputs of two ReLU networks can be apart on the box: (W - W') a + W' (a - a'), layer by layer."""
    entering = [(low, high), *bounds_on_box(layers, low, high)[:-1]]
    distance = 0.0
    for layer, other, (least, most) in zip(layers, others, entering, strict=True):
        size = float(np.linalg.norm(np.maximum(np.abs(least), np.abs(most))))
        difference = float(np.linalg.norm(layer.weight - other.weight, 2))
        distance = difference * size + float(np.linalg.norm(other.weight, 2)) * distance
    return distance
