"""The linear twin: the same weights on the same data, without the activations."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from hessmap.errors import UnsupportedNetwork
from hessmap.maps.curvature_map.network import beyond_formulas
from hessmap.networks import Residual, SelfAttention, describe
from hessmap.problem import Problem


def linear_twin(problem: Problem) -> Problem | None:
    """The problem with every activation replaced by the identity and the outputs scaled to unit mean square; None
    where the network is linear already, is none that ``describe`` knows, or the formulas do not speak of the problem.

    The rank formulas are theorems for the twin, and its weights are generic: it is not the twin that was trained,
    so neither its residual nor its gradient is small. The outputs are scaled by one factor common to all layers,
    which changes no generic rank. Without it the logits of a trained network saturate the softmax, and
    eigenvalues that are not zero drown in rounding.
    """
    try:
        network = describe(problem.model)
    except UnsupportedNetwork:
        return None
    if isinstance(network, SelfAttention | Residual):
        return None
    if network.is_linear or beyond_formulas(problem) or not isinstance(problem.inputs, Tensor):
        return None
    twin = replace(network, activation="identity").build()
    inputs = problem.inputs.flatten(1)
    with torch.no_grad():
        for mine, given in zip(twin.parameters(), problem.model.parameters(), strict=True):
            mine.copy_(given)
        size = float((problem.weights @ twin(inputs).square().mean(1)).sqrt())
    if size > 0:
        _scale_outputs(twin, 1 / size)
    return Problem(
        twin,
        problem.loss,
        inputs,
        problem.targets,
        weights=problem.weights,
        memory_budget=problem.memory_budget,
    )


@torch.no_grad()
def _scale_outputs(network: nn.Sequential, factor: float) -> None:
    """Multiply the function of a linear network by a factor, evenly: each weight matrix by its L-th root, and the
    bias of layer l, which passes L - l more layers, by the power l of it."""
    layers = [layer for layer in network if isinstance(layer, nn.Linear | nn.Conv1d)]
    root = factor ** (1 / len(layers))
    for depth, layer in enumerate(layers, start=1):
        layer.weight.mul_(root)
        if layer.bias is not None:
            layer.bias.mul_(root**depth)
