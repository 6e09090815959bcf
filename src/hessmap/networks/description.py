"""From a torch model back to its architecture."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.networks.activations import Activation
from hessmap.networks.architecture import Architecture
from hessmap.networks.block_description import BLOCKS, describe_blocks
from hessmap.networks.convolutional_description import describe_patches
from hessmap.networks.fully_connected import FullyConnected
from hessmap.networks.module_tree import Named, Rules, sequential_layers

_RULES = Rules(
    "a fully connected network is a chain of nn.Linear layers with one activation after each but the last",
    "Such a network can be measured (Problem, loss_hessian), but has no formula by its widths",
)


def describe(module: nn.Module) -> Architecture:
    """The architecture of an ``nn.Sequential``, or of a layer of linear self-attention; anything else is an
    UnsupportedNetwork that names the layer.

    Nested Sequentials, an nn.Flatten at the start, nn.Identity and switched-off dropout are seen through.
    A tied, parametrised or hooked layer is refused: its widths alone do not say what it computes.

    >>> describe(nn.Sequential(nn.Flatten(), nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 10)))
    FullyConnected(widths=(64, 30, 10), bias=True, activation='relu')
    >>> print(describe(nn.Sequential(nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 10, bias=False))))
    64-30b-10 relu
    >>> print(describe(nn.Sequential(nn.Conv1d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 18, 10))))
    conv-1x20-8x3-10 relu bias
    >>> from hessmap.networks import Residual
    >>> print(describe(Residual(8, 3, inner_width=2, output_dim=4, trained_ends=("output",)).build()))
    residual-8x3/2-4 trained_output
    """
    if not isinstance(module, nn.Module):
        raise UnsupportedNetwork(sentence("describe needs a torch.nn.Module", f"got a {type(module).__name__}"))
    layers = sequential_layers(module, _RULES)
    if any(type(layer) in BLOCKS for _, layer in layers):
        return describe_blocks(layers)
    if any(type(layer) in (nn.Conv1d, nn.Unflatten) for _, layer in layers):
        return describe_patches(layers)
    return _describe_fully_connected(layers)


def _describe_fully_connected(layers: list[Named]) -> FullyConnected:
    linears: list[tuple[str, nn.Linear]] = []
    activations: list[list[tuple[str, Activation]]] = []
    for name, layer in layers:
        if type(layer) is nn.Linear:
            linears.append((name, layer))
            activations.append([])
        elif type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1) and not linears:
            continue
        elif (activation := _RULES.activation(name, layer)) != "identity":
            if not linears:
                _RULES.refuse(name, layer, "stands before the first nn.Linear", "Apply it to the inputs instead")
            activations[-1].append((f"{name} ({type(layer).__name__})", activation))
    if not linears:
        raise UnsupportedNetwork(sentence(_RULES.must, "the model holds no nn.Linear", _RULES.otherwise))
    for (before_name, before), (name, layer) in pairwise(linears):
        if before.out_features != layer.in_features:
            mismatch = f"takes {layer.in_features} inputs, layer {before_name} gives {before.out_features}"
            _RULES.refuse(name, layer, mismatch, "The model cannot run as it stands")
    _RULES.refuse_shared(linears)
    _RULES.refuse_final(activations.pop())
    return FullyConnected(
        (linears[0][1].in_features, *(layer.out_features for _, layer in linears)),
        bias=[layer.bias is not None for _, layer in linears],
        activation=_RULES.shared_activation(activations),
    )
