"""From a Problem whose model is a chain of linear layers, dense or convolutional, to its closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hessmap.errors import UnsupportedNetwork, require, sentence
from hessmap.exact import tensor_inputs
from hessmap.linalg.vectors import Layout
from hessmap.losses import Squared
from hessmap.networks import FullyConnected, Named, Rules, Unreadable, describe, sequential_layers, shape_after
from hessmap.problem.problem import Problem
from hessmap_research.deep_linear.convolutional import DeepLinearConvolution
from hessmap_research.deep_linear.network import DeepLinear
from hessmap_research.toeplitz import WITH_MATRIX, ToeplitzLayer, toeplitz_layer

_RULES = Rules(
    "closed forms hold for chains of convolutions, average pooling and nn.Linear without activation",
    "Use loss_hessian(problem)",
)
_AGREEMENT = 1e-10


def deep_linear_of(problem: Problem) -> DeepLinear:
    """The deep linear network of a problem: no activation, squared loss, every parameter free, no l2."""
    architecture = describe(problem.model)
    if not isinstance(architecture, FullyConnected):
        must, got = "this closed form holds for fully connected networks", f"the model is {architecture}"
        raise UnsupportedNetwork(sentence(must, got, "Use deep_linear_convolution_of(problem)"))
    if not architecture.is_linear:
        must, got = "closed forms hold for linear networks", f"this one has activation '{architecture.activation}'"
        raise UnsupportedNetwork(sentence(must, got, _RULES.otherwise))
    if architecture.has_bias and not all(architecture.biases):
        must, got = "this closed form holds for a bias in every layer or in none", f"the model is {architecture}"
        raise UnsupportedNetwork(sentence(must, got, _RULES.otherwise))
    inputs = _checked_inputs(problem)
    require(
        problem.num_parameters == architecture.num_parameters,
        "closed forms need every parameter free",
        f"{architecture.num_parameters - problem.num_parameters} of them are frozen",
    )
    named = problem.unflatten(problem.parameters)
    weights = [named[name] for name in problem.layout.names if name.endswith("weight")]
    biases = [named[name] for name in problem.layout.names if name.endswith("bias")] if architecture.has_bias else None
    return DeepLinear.from_data(weights, biases, inputs.flatten(1), problem.targets, problem.weights)


def deep_linear_convolution_of(problem: Problem) -> DeepLinearConvolution:
    """The closed form of a linear convolutional network: squared loss, no l2. Frozen parameters are left out.

    The chain is an nn.Sequential of convolutions, average pooling, nn.Linear, nn.Flatten and nn.Unflatten. That it is
    the model is checked on the data.
    """
    inputs = _checked_inputs(problem)
    chain = _chain(problem.model, tuple(inputs.shape[1:]))
    _RULES.refuse_shared([named for named, _ in chain])
    layers = tuple(layer for _, layer in chain)
    modules: list[Any] = [module for (_, module), _ in chain]
    has_bias = any(getattr(module, "bias", None) is not None for module in modules)
    biases = [_bias(module, layer) for module, layer in zip(modules, layers, strict=True)] if has_bias else None
    matrices = [layer.matrix for layer in layers]
    network = DeepLinear.from_data(matrices, biases, inputs.flatten(1), problem.targets, problem.weights)
    _check_outputs(problem, network, inputs)
    free = tuple(_free_places(name, layer, has_bias, problem.layout) for (name, _), layer in chain)
    return DeepLinearConvolution(layers, network, free, problem.layout)


def _checked_inputs(problem: Problem) -> Tensor:
    """The inputs of a problem with the squared loss, in float64, without penalty."""
    must, got = "closed forms hold for the squared loss", f"the loss is '{problem.loss.name}'"
    got = f"{got} at every position of {problem.output_shape}" if problem.loss.name == "squared" else got
    require(isinstance(problem.loss, Squared), must, got, _RULES.otherwise)
    require(problem.l2 == 0, "closed forms leave out the penalty", f"l2 is {problem.l2:g}", "Set l2 to 0")
    is_double, got = problem.dtype == torch.float64, f"the problem is in {problem.dtype}"
    require(is_double, "closed forms are in float64", got, "Build it with dtype=torch.float64")
    return tensor_inputs(problem, _RULES)


def _chain(model: nn.Module, shape: tuple[int, ...]) -> list[tuple[Named, ToeplitzLayer]]:
    """The layers with a matrix, in order, each with the name of its module."""
    chain: list[tuple[Named, ToeplitzLayer]] = []
    for name, module in sequential_layers(model, _RULES):
        if type(module) in (nn.Flatten, nn.Unflatten):
            try:
                shape = shape_after(module, shape)
            except Unreadable as reason:
                _RULES.refuse(name, module, f"is a reshaping{reason}")
        elif type(module) in WITH_MATRIX:
            if type(module) is nn.Linear and len(shape) > 1:
                _RULES.refuse(name, module, f"is applied to many rows of each sample, of shape {shape}")
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


def _free_places(name: str, layer: ToeplitzLayer, has_bias: bool, layout: Layout) -> Tensor:
    """Where the layer's free weights, then its free biases, lie among the filters with one more tap for the bias."""
    places = layer.weight_places[:0]
    filters, taps = layer.filters.shape
    prefix = f"{name}." if name else ""
    if f"{prefix}weight" in layout.names:
        skipped = layer.weight_places // taps if has_bias else 0
        places = layer.weight_places + skipped
    if f"{prefix}bias" in layout.names:
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
