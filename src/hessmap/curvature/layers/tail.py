"""The weights behind a layer and how active the units between them are, for closed forms of the output factor."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from hessmap.curvature.batch_graph import vjp_rows
from hessmap.curvature.layers.layer import Layer, find_layer, layer_names
from hessmap.curvature.nested_tensors import num_rows
from hessmap.curvature.problem import Problem
from hessmap.curvature.recording import LayerCall, recording_of, replay
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
    start = find_layer(problem, name)
    if start.kind not in ("linear", "convolution"):
        raise _unsupported_error(name, f"it is of kind {start.kind}")
    known = [find_layer(problem, other) for other in layer_names(problem)]
    layers = [layer for layer in known if layer.kind in ("linear", "convolution")]
    chain = layers[[layer.name for layer in layers].index(start.name) :]
    is_chain = all(layer.is_plain and layer.kind == "linear" and layer.num_positions == 1 for layer in chain)
    uses = [use for use in recording_of(problem).uses if use.kind in ("linear", "convolution", "other")]
    if not is_chain or len(uses) != len(layers):
        raise _unsupported_error(name, "it has convolutions, tokens or shared weights")
    slopes = tuple(_mean_slopes(problem, before, after) for before, after in pairwise(chain))
    return Tail(tuple(problem.named[layer.weight] for layer in chain[1:]), slopes)


def _mean_slopes(problem: Problem, before: Layer, after: Layer) -> Tensor:
    """The mean diagonal of d(input of the next layer)/dz, which must be diagonal."""
    total, mass = torch.zeros(before.num_outputs, dtype=torch.float64), float(problem.weights.sum())
    generator = torch.Generator().manual_seed(0)
    for data, _, weights in problem.batches(4096):

        def entering(perturbation: Tensor, data: Any = data) -> Tensor:
            found = dict[int, Tensor]()
            (number, use), (later, _) = before.uses[0], after.uses[0]

            def at_use(at: int, call: LayerCall) -> Tensor:
                found[at] = call.inputs
                outputs = call.outputs()
                if at != number:
                    return outputs
                return outputs + use.row_outputs(perturbation[..., None], tuple(outputs.shape))

            replay(problem, recording_of(problem), data, (number, later), at_use)
            return found[later].reshape(num_rows(data), -1)

        zero = problem.parameters.new_zeros(num_rows(data), before.num_outputs).requires_grad_()
        with torch.enable_grad():
            values = entering(zero)
        if values.shape[1] != before.num_outputs:
            raise _unsupported_error(before.name, f"'{after.name}' takes {values.shape[1]} inputs")
        random = torch.randn(values.shape, generator=generator, dtype=torch.float64).to(values)
        cotangents = torch.stack([torch.ones_like(random), random])
        slopes, images = vjp_rows([values], [zero], [cotangents], together=False)[0]
        if not torch.allclose(images, random * slopes, rtol=1e-10, atol=1e-12):
            raise _unsupported_error(before.name, f"units are mixed on the way to '{after.name}'")
        total += weights @ slopes
    return total / mass


def _unsupported_error(name: str, got: str) -> UnsupportedNetwork:
    must = f"weights behind layer '{name}' must follow each other with element-wise maps between"
    return UnsupportedNetwork(sentence(must, got, "Use layer_factors for the measured output factor"))
