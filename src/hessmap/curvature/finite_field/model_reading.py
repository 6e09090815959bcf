"""From a torch model to a chain that can be evaluated exactly, or a refusal that names the layer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import nn

from hessmap.curvature.finite_field.chain import Affine, Chain, ExactActivation, Floats, Identity, LeakyRelu
from hessmap.curvature.layout import Layout
from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.networks import PolynomialActivation

_MUST = "exact arithmetic needs an nn.Sequential of nn.Linear with identity, ReLU, leaky ReLU or polynomial activations"
_INSTEAD = "Use numerical_rank for this network, or generic_rank for the generic linear network of its widths"


def read_chain(model: nn.Module, layout: Layout) -> Chain[Floats]:
    """The model's layers in float64, every parameter at its place in ``layout`` (-1 where it is not in it).

    A constant identity layer stands between two activations in a row, before a first and after a last one; an
    identity activation stands between two linear layers in a row. A module used twice is two layers with the same
    positions.
    """
    places = {id(value): layout[name] for name, value in model.named_parameters() if name in layout.names}
    layers: list[Affine[Floats]] = []
    activations: list[ExactActivation] = []
    width = next((module.in_features for _, module in _leaves("", model) if isinstance(module, nn.Linear)), 0)
    for name, module in _leaves("", model):
        if type(module) is nn.Linear:
            if len(activations) < len(layers):
                activations.append(Identity())
            layers.append(_affine(module, places))
            width = module.out_features
        elif not isinstance(activation := _activation(name, module), Identity):
            if len(layers) == len(activations):
                layers.append(_constant_identity(width))
            activations.append(activation)
    if len(layers) == len(activations):
        layers.append(_constant_identity(width))
    return Chain(tuple(layers), tuple(activations), layout.size)


def _leaves(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    if type(module).forward is not nn.Sequential.forward:
        yield name, module
        return
    for child_name, child in module._modules.items():  # named_children would show a repeated module only once
        if child is not None:
            yield from _leaves(f"{name}.{child_name}".lstrip("."), child)


def _affine(module: nn.Linear, places: dict[int, slice]) -> Affine[Floats]:
    weights, positions = [], []
    for parameter in (module.weight, module.bias):
        if parameter is None:
            continue
        place = places.get(id(parameter))
        flat = np.full(parameter.numel(), -1) if place is None else np.arange(place.start, place.stop)
        weights.append(parameter.detach().numpy().reshape(module.out_features, -1))
        positions.append(flat.reshape(module.out_features, -1))
    return Affine(np.concatenate(weights, axis=1), np.concatenate(positions, axis=1), module.bias is not None)


def _constant_identity(width: int) -> Affine[Floats]:
    return Affine(np.eye(width), np.full((width, width), -1), has_bias=False)


def _activation(name: str, module: nn.Module) -> ExactActivation:
    """What a layer that is not linear does to each number; a refusal for all that is not exact."""
    kind = type(module)
    if kind in (nn.Identity, nn.Dropout):  # a dropout that is switched on never gets into a Problem
        return Identity()
    if isinstance(module, nn.Flatten) and module.start_dim == 1 and module.end_dim == -1:
        return Identity()
    if kind is nn.ReLU:
        return LeakyRelu(0.0)
    if isinstance(module, nn.LeakyReLU) and kind is nn.LeakyReLU:
        return LeakyRelu(float(module.negative_slope))
    if isinstance(module, PolynomialActivation) and kind is PolynomialActivation:
        return module.polynomial
    where = f"layer {name} is {kind.__name__}" if name else f"the model is {kind.__name__}"
    raise UnsupportedNetwork(sentence(_MUST, where, _INSTEAD))
