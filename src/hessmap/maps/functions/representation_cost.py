"""All bounds on what the function of a network costs in squared weights, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from hessmap.curvature.input_output import NetworkFunction, affine_layers
from hessmap.curvature.input_output.layer_products import sequential_leaves
from hessmap.errors import HessmapError
from hessmap.maps.functions import function_rank, input_jacobians
from hessmap.results import CostBound, RepresentationCost
from hessmap.theory import functions

Floats = NDArray[np.float64]
_PASSING = (nn.Identity, nn.Flatten, nn.Dropout)
_PAPER = "Jacot 2023"


def representation_cost(
    model: nn.Module, inputs: Tensor | NDArray[Any], *, num_directions: int = 16, seed: int = 0
) -> RepresentationCost:
    """||W||^2 of a network with every bound on it that its kind allows; each says what kind of truth it is.

    "jacobians": L sum s^(2/L) at the steepest sample, below every L-layer network with slopes of at most 1 that has
    these Jacobians (Proposition 3). "linear": the least of all linear networks for the same map. "path": below every
    L-layer network of bottleneck rank 1 through the same outputs (Proposition 10). "deeper": the squared norm of a
    network of one layer more that computes the same function on the box of the inputs. Where all that is known, also
    the depths at which rank recovery is expected, by ``num_directions`` random interpolators of rank 1.

    >>> import torch
    >>> layers = [nn.Linear(2, 2, bias=False) for _ in range(2)]
    >>> for layer in layers:
    ...     _ = nn.init.eye_(layer.weight)
    >>> cost = representation_cost(nn.Sequential(*layers), torch.eye(2))
    >>> cost.squared_norm, round(cost.bound("linear").squared_norm, 9)
    (4.0, 4.0)
    """
    function = NetworkFunction(model, inputs)
    layers = affine_layers(function.model)
    total = sum(float(part.square().sum()) for part in function.model.parameters())
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
    path = _tried(notes_of, "path", lambda: _rank_one_bound(function))
    if path is not None:
        bounds.append(_from_path(path, depth))
    found = RepresentationCost(depth, total, tuple(bounds), notes=tuple(notes_of), provenance=function.provenance)
    return _with_construction(found, function, layers, path, num_directions, seed)


def _from_jacobians(model: nn.Module, inputs: Any) -> CostBound:
    found = function_rank(model, inputs).schatten
    assert found is not None
    depth = found.num_layers
    which = f"all networks of {depth} layers and slopes of at most 1 with these Jacobians"
    return CostBound(
        "jacobians", depth * found.largest, depth, "lower_bound", "theorem", which, f"{_PAPER}, Proposition 3"
    )


def _is_linear(model: nn.Module) -> bool:
    return all(type(leaf) in (nn.Linear, *_PASSING) for leaf in sequential_leaves(model))


def _of_linear_map(model: nn.Module, inputs: Any, depth: int) -> CostBound:
    matrix = input_jacobians(model, inputs[:2])[0].numpy()
    cost = functions.linear_representation_cost(matrix, depth)
    which = f"all linear networks of {depth} layers for the same map; balanced factors attain it"
    return CostBound("linear", cost, depth, "lower_bound", "theorem", which, f"{_PAPER}, section 1")


def _tried(notes: list[str], name: str, work: Callable[[], Any]) -> Any:
    """What the work gives, or None and a note that says why there is nothing."""
    try:
        return work()
    except HessmapError as error:
        notes.append(f"no bound by {name}: {error}")
        return None


def _rank_one_bound(function: NetworkFunction) -> functions.RankOneBound:
    return functions.rank_one_lower_bound(_flat(function), function.outputs(function.inputs).numpy())


def _flat(function: NetworkFunction) -> Floats:
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
    num_directions: int,
    seed: int,
) -> RepresentationCost:
    """The same with the upper bounds for ReLU networks."""
    from dataclasses import replace

    if not _is_relu_chain(function.model):
        return replace(found, notes=(*found.notes, "constructions need a ReLU between every two linear layers"))
    plain = [(layer.weight.numpy(), None if layer.bias is None else layer.bias.numpy()) for layer in layers]
    given, notes = _flat(function), list(found.notes)
    low, high = given.min(axis=0), given.max(axis=0)
    deeper = functions.deepened(plain, found.num_layers + 1, low, high)
    which = f"a network of {found.num_layers + 1} layers for the same function on the box of the inputs"
    reference = f"{_PAPER}, proof of Theorem 1"
    bound = CostBound(
        "deeper", deeper.squared_norm, found.num_layers + 1, "upper_bound", "construction", which, reference
    )
    rank = min(int(np.linalg.matrix_rank(weight)) for weight, _ in plain)
    constant = functions.cost_constant(plain, rank, low, high)
    depths = None
    if path is not None:
        outputs = function.outputs(function.inputs).numpy()
        generator = np.random.default_rng(seed)
        directions = list(generator.normal(size=(num_directions, given.shape[1])))
        fitted = _tried(notes, "rank-1 fits", lambda: functions.rank_one_constant(given, outputs, directions))
        depths = None if fitted is None else functions.recovery_depths(rank, constant, fitted, path.slope)
    return replace(
        found,
        bounds=(*found.bounds, bound),
        inner_rank=rank,
        constant=constant,
        expected_depths=None if depths is None else depths.expected,
        proved_depths=None if depths is None else depths.proved,
        notes=tuple(notes),
    )


def _is_relu_chain(model: nn.Module) -> bool:
    kinds = [type(leaf) for leaf in sequential_leaves(model) if type(leaf) not in _PASSING]
    wanted = [nn.Linear if place % 2 == 0 else nn.ReLU for place in range(len(kinds))]
    return kinds == wanted and len(kinds) % 2 == 1
