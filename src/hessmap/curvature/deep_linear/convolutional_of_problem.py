"""From a Problem whose model is a chain of convolutions and dense layers to its closed form."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from hessmap.curvature.deep_linear.convolutional import DeepLinearConvolution
from hessmap.curvature.deep_linear.network import DeepLinear
from hessmap.curvature.layout import Layout
from hessmap.curvature.problem import Problem
from hessmap.curvature.toeplitz import WITH_MATRIX, ToeplitzLayer, toeplitz_layer
from hessmap.errors import UnsupportedNetwork, require, sentence
from hessmap.networks.module_tree import Named, Rules, sequential_layers

_RULES = Rules(
    "closed forms hold for chains of convolutions, average pooling and nn.Linear without activation",
    "Use loss_hessian(problem)",
)
_AGREEMENT = 1e-10


def deep_linear_convolution_of(problem: Problem) -> DeepLinearConvolution:
    """The closed form of a linear convolutional network: squared loss, no l2. Frozen parameters are left out.

    The chain is an nn.Sequential of convolutions, average pooling, nn.Linear, nn.Flatten and nn.Unflatten. That it is
    the model is checked on the data.
    """
    must, remedy = "closed forms hold for the squared loss without penalty", _RULES.otherwise
    got = f"the loss is '{problem.loss.name}' and l2 is {problem.l2:g}"
    require(problem.loss.name == "squared" and problem.l2 == 0, must, got, remedy)
    chain = _chain(problem)
    _RULES.refuse_shared([named for named, _ in chain])
    layers = tuple(layer for _, layer in chain)
    modules: list[Any] = [module for (_, module), _ in chain]
    has_bias = any(getattr(module, "bias", None) is not None for module in modules)
    biases = [_bias(module, layer) for module, layer in zip(modules, layers, strict=True)] if has_bias else None
    ((inputs, targets, sample_weights),) = problem.batches()
    matrices = [layer.matrix for layer in layers]
    network = DeepLinear.from_data(matrices, biases, inputs.flatten(1), targets, sample_weights)
    _check_outputs(problem, network, inputs)
    free = tuple(_free(name, layer, has_bias, problem.layout) for (name, _), layer in chain)
    return DeepLinearConvolution(layers, network, free, problem.layout)


def _chain(problem: Problem) -> list[tuple[Named, ToeplitzLayer]]:
    """The layers with a matrix, in order, each with the name of its module."""
    shape = tuple(problem.inputs.shape[1:])
    chain: list[tuple[Named, ToeplitzLayer]] = []
    for name, module in sequential_layers(problem.model, _RULES):
        if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            shape = (prod(shape),)
        elif type(module) is nn.Unflatten and module.dim == 1 and len(shape) == 1:
            shape = tuple(int(size) for size in module.unflattened_size)
        elif type(module) in WITH_MATRIX:
            layer = toeplitz_layer(module, shape)
            chain.append(((name, module), layer))
            shape = layer.output_shape
        elif _RULES.activation(name, module) != "identity":
            _RULES.refuse(name, module, "is an activation")
    return chain


def _bias(module: Any, layer: ToeplitzLayer) -> Tensor:
    """What is added to each unit: the bias of its channel, zero without one."""
    bias = getattr(module, "bias", None)
    channels = torch.zeros(len(layer.filters), dtype=torch.float64) if bias is None else bias.detach()
    return channels.repeat_interleave(layer.num_positions)


def _free(name: str, layer: ToeplitzLayer, has_bias: bool, layout: Layout) -> Tensor:
    """Where the layer's free weights, then its free biases, lie among the filters with one more tap for the bias."""
    places = layer.weight_places[:0]
    filters, taps = layer.filters.shape
    if f"{name}.weight" in layout.names:
        skipped = layer.weight_places // taps if has_bias else 0
        places = layer.weight_places + skipped
    if f"{name}.bias" in layout.names:
        places = torch.cat([places, torch.arange(filters) * (taps + 1) + taps])
    return places


def _check_outputs(problem: Problem, network: DeepLinear, inputs: Tensor) -> None:
    outputs = problem.forward(problem.named, inputs)
    data = inputs.flatten(1)
    for place, weight in enumerate(network.weights):
        data = data @ weight.T + (0 if network.biases is None else network.biases[place])
    error = float((data - outputs).abs().max() / outputs.abs().max().clamp(min=1e-300))
    must = f"the chain of matrices must compute what the model computes, to {_AGREEMENT:g}"
    if error > _AGREEMENT:
        raise UnsupportedNetwork(sentence(must, f"they differ by {error:.2g}", _RULES.otherwise))
