"""The weights behind a layer and how active the units between them are, for closed forms of the output factor."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.func import vjp

from hessmap.curvature.layers.watch import Layer, Watch, calls_of_one_sample, find_layer, layer_names, weight_names
from hessmap.curvature.problem import Problem
from hessmap.errors import UnsupportedNetwork, sentence


@dataclass(frozen=True, eq=False)
class Tail:
    """Behind layer p: ``weights`` W^(p+1), .., W^(L), and ``slopes`` q^(p), .., q^(L-1), the mean derivative of each
    activation, unit by unit: for ReLU the fraction of samples on which the unit is active."""

    weights: tuple[Tensor, ...]
    slopes: tuple[Tensor, ...]


@torch.no_grad()
def fully_connected_tail(problem: Problem, name: str) -> Tail:
    """The linear layers behind one, if nothing but element-wise maps (ReLU, frozen batch-norm) lies between them."""
    names = layer_names(problem)
    start = find_layer(problem, name)
    chain = [find_layer(problem, later) for later in names[names.index(start.name) :]]
    is_chain = all(layer.kind == "linear" and layer.num_positions == 1 for layer in chain[1:])
    is_whole = len(calls_of_one_sample(problem)) == len(names)
    if not is_chain or not is_whole or start.num_positions != 1:
        raise _unsupported(name, "it has convolutions, tokens or shared weights")
    slopes = tuple(_mean_slopes(problem, before, after) for before, after in pairwise(chain))
    return Tail(tuple(problem.named[layer.weight] for layer in chain[1:]), slopes)


def _mean_slopes(problem: Problem, before: Layer, after: Layer) -> Tensor:
    """The mean diagonal of d(input of the next layer)/dz, which must be diagonal."""
    total, mass = torch.zeros(before.num_outputs, dtype=torch.float64), float(problem.weights.sum())
    generator = torch.Generator().manual_seed(0)
    for data, _, weights in problem.batches(4096):

        def entering(perturbation: Tensor, data: Tensor = data) -> Tensor:
            watch = Watch(weight_names(problem), before.weight, perturbation)
            with watch:
                problem.forward(problem.named, data)
            return next(call.entering for name, call in watch.calls if name == after.weight).reshape(len(data), -1)

        still = torch.zeros(len(data), 1, before.num_outputs, dtype=torch.float64)
        linearised: Any = vjp(entering, still)
        values, pull = linearised
        if values.shape[1] != before.num_outputs:
            raise _unsupported(before.name, f"'{after.name}' takes {values.shape[1]} inputs")
        slopes = pull(torch.ones_like(values))[0][:, 0]
        random = torch.randn(values.shape, generator=generator, dtype=torch.float64)
        if not torch.allclose(pull(random)[0][:, 0], random * slopes, rtol=1e-10, atol=1e-12):
            raise _unsupported(before.name, f"units are mixed on the way to '{after.name}'")
        total += weights @ slopes
    return total / mass


def _unsupported(name: str, got: str) -> UnsupportedNetwork:
    must = f"weights behind layer '{name}' must follow each other with element-wise maps between"
    return UnsupportedNetwork(sentence(must, got, "Use layer_factors for the measured output factor"))
