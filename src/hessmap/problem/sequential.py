"""Multilayer perceptrons (MLPs): linear layers and elementwise activations, whose derivatives have closed forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hessmap.errors import UnsupportedNetwork
from hessmap.networks import Rules, is_elementwise, sequential_layers

if TYPE_CHECKING:
    from hessmap.problem.problem import Problem

_RULES = Rules("an MLP has linear layers and elementwise activations alone", "Its products go through autograd")


@dataclass(frozen=True)
class DenseLayer:
    """z = W a + b, then an activation of every z on its own (none after the last layer)."""

    weight: str
    bias: str | None
    activation: nn.Module | None


def as_mlp(problem: Problem) -> tuple[DenseLayer, ...] | None:
    """The layers of a problem's model from inputs to outputs, or None if it is not an MLP.

    Its parameters must all be there, and be nothing but the weights and biases of the layers; every layer must be of
    the very type that is known, with nothing hooked into it.
    """
    if problem.user_forward is not None:
        return None
    try:
        layers = _dense_layers(problem.model)
    except UnsupportedNetwork:
        return None
    names = [name for layer in layers for name in (layer.weight, layer.bias) if name is not None]
    return layers if layers and names == list(problem.named) else None


def tensor_inputs(problem: Problem, rules: Rules) -> Tensor:
    """The inputs of a model that is read by its layers: one tensor, with which the model itself is called."""
    if problem.user_forward is not None:
        rules.refuse("", problem.model, "is called by a forward function of the user's")
    inputs = problem.inputs
    if not isinstance(inputs, Tensor):
        rules.refuse("", problem.model, f"is called with a {type(inputs).__name__} of tensors")
    return inputs


def flat_inputs(problem: Problem, inputs: object) -> Tensor | None:
    """One row per sample; None if a sample is no vector that the first layer takes as a whole."""
    if not isinstance(inputs, Tensor):
        return None
    flattens = any(type(layer) is nn.Flatten for layer in problem.model.modules())
    return inputs if inputs.ndim == 2 else inputs.flatten(1) if flattens else None


def _dense_layers(model: nn.Module) -> tuple[DenseLayer, ...]:
    found: list[DenseLayer] = []
    layers: list[tuple[str, nn.Module]] = []
    for name, layer in sequential_layers(model, _RULES):
        if type(layer) is nn.Linear:
            prefix = f"{name}." if name else ""
            found.append(DenseLayer(f"{prefix}weight", f"{prefix}bias" if layer.bias is not None else None, None))
            layers.append((name, layer))
        elif not found and type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            continue
        elif is_elementwise(layer) and found and found[-1].activation is None:
            found[-1] = DenseLayer(found[-1].weight, found[-1].bias, layer)
        elif type(layer) is not nn.Identity:
            _RULES.refuse(name, layer, "is no known part of an MLP")
    _RULES.refuse_shared(layers)
    if found and found[-1].activation is not None:
        _RULES.refuse("", model, "ends in an activation")
    return tuple(found)


def activation_derivatives(layer: DenseLayer, before: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """The activation and its first two derivatives at every z; None for a second one that vanishes."""
    if layer.activation is None:
        return before, torch.ones_like(before), None
    point = before.detach().requires_grad_()
    second = None
    with torch.enable_grad():
        value = layer.activation(point.clone())  # it may work in place
        (slope,) = torch.autograd.grad(value.sum(), point, create_graph=True)
        if slope.requires_grad:
            (second,) = torch.autograd.grad(slope.sum(), point, allow_unused=True)
    vanishes = second is None or not bool(second.any())
    return value.detach(), slope.detach(), None if vanishes else second
