"""From a torch model back to its architecture."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NoReturn

from torch import nn

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.networks.activations import Activation
from hessmap.networks.fully_connected import FullyConnected
from hessmap.networks.modules import MODULES, PolynomialActivation

_MUST = "a fully connected network is a chain of nn.Linear layers with one activation after each but the last"
_MEASURE = "Such a network can be measured (Problem, loss_hessian), but has no formula by its widths"

_OPTIONS: dict[str, dict[str, object]] = {
    "leaky_relu": {"negative_slope": 0.01},
    "elu": {"alpha": 1.0},
    "gelu": {"approximate": "none"},
}

Named = tuple[str, nn.Module]


def describe(module: nn.Module) -> FullyConnected:
    """The architecture of an ``nn.Sequential``; anything else is an UnsupportedNetwork that names the layer.

    Nested Sequentials, an nn.Flatten at the start, nn.Identity and switched-off dropout are seen through.
    A tied, parametrised or hooked layer is refused: its widths alone do not say what it computes.

    >>> describe(nn.Sequential(nn.Flatten(), nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 10)))
    FullyConnected(widths=(64, 30, 10), bias=True, activation='relu')
    """
    if not isinstance(module, nn.Module):
        raise UnsupportedNetwork(sentence("describe needs a torch.nn.Module", f"got a {type(module).__name__}"))
    linears: list[tuple[str, nn.Linear]] = []
    activations: list[list[tuple[str, Activation]]] = []
    for name, layer in _leaves("", module):
        if type(layer) is nn.Linear:
            linears.append((name, layer))
            activations.append([])
        elif isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1) and not linears:
            continue
        elif (activation := _activation(name, layer)) != "identity":
            if not linears:
                _refuse(name, layer, "stands before the first nn.Linear", "Apply it to the inputs instead")
            activations[-1].append((f"{name} ({type(layer).__name__})", activation))
    if not linears:
        raise UnsupportedNetwork(sentence(_MUST, "the model holds no nn.Linear", _MEASURE))
    _check_chain(linears)
    return FullyConnected(
        (linears[0][1].in_features, *(layer.out_features for _, layer in linears)),
        bias=_shared_bias(linears),
        activation=_shared_activation(activations),
    )


def _leaves(name: str, module: nn.Module) -> Iterator[Named]:
    """The layers of nested Sequentials in order, with their dotted names."""
    if module._forward_hooks or module._forward_pre_hooks:
        _refuse(name, module, "has forward hooks, which may change what it computes", "Remove them first")
    if type(module).forward is not nn.Sequential.forward:
        yield name, module
        return
    for child_name, child in module._modules.items():
        if child is not None:
            yield from _leaves(f"{name}.{child_name}".lstrip("."), child)


def _activation(name: str, layer: nn.Module) -> Activation:
    """The activation a layer is, "identity" for what changes nothing; a refusal for all else."""
    if isinstance(layer, nn.Dropout) and (layer.p == 0 or not layer.training):
        return "identity"
    if type(layer) is PolynomialActivation:
        return layer.polynomial
    for activation, kind in MODULES.items():
        # A subclass may compute something else, so only the exact type counts.
        if type(layer) is kind:
            for option, value in _OPTIONS.get(activation, {}).items():
                if getattr(layer, option) != value:
                    got = f"has {option}={getattr(layer, option)!r} where '{activation}' has {value!r}"
                    _refuse(name, layer, got, _MEASURE)
            return activation
    return _refuse(name, layer, "is neither a linear layer nor a known activation", _MEASURE)


def _check_chain(linears: list[tuple[str, nn.Linear]]) -> None:
    """Each layer takes what the one before gives, and no weight is used twice."""
    for (before_name, before), (name, layer) in pairwise(linears):
        if before.out_features != layer.in_features:
            mismatch = f"takes {layer.in_features} inputs, layer {before_name} gives {before.out_features}"
            _refuse(name, layer, mismatch, "The model cannot run as it stands")
    owners: dict[int, str] = {}
    for name, layer in linears:
        for parameter in layer.parameters():
            if id(parameter) in owners:
                _refuse(name, layer, f"shares a parameter with layer {owners[id(parameter)]}", _MEASURE)
            owners[id(parameter)] = name


def _shared_bias(linears: list[tuple[str, nn.Linear]]) -> bool:
    with_bias = [name for name, layer in linears if layer.bias is not None]
    if with_bias and len(with_bias) < len(linears):
        without = [name for name, layer in linears if layer.bias is None]
        raise UnsupportedNetwork(
            sentence(
                "all layers of a fully connected network have a bias or none has",
                f"layers {', '.join(with_bias)} have one and layers {', '.join(without)} have none",
                _MEASURE,
            )
        )
    return bool(with_bias)


def _shared_activation(activations: list[list[tuple[str, Activation]]]) -> Activation:
    """The one activation after every hidden layer; ``activations`` holds what follows each linear layer."""
    *hidden, last = activations
    if last:
        raise UnsupportedNetwork(
            sentence(
                _MUST,
                f"layer {last[0][0]} follows the last nn.Linear",
                "Leave it out, or make it part of the loss (softmax belongs to 'cross_entropy')",
            )
        )
    for found in hidden:
        if len(found) > 1:
            names = " and ".join(name for name, _ in found)
            raise UnsupportedNetwork(sentence(_MUST, f"layers {names} follow one another", _MEASURE))
    kinds = [found[0][1] if found else "identity" for found in hidden]
    if any(kind != kinds[0] for kind in kinds):
        raise UnsupportedNetwork(
            sentence(
                "all hidden layers of a fully connected network have the same activation",
                f"they have {', '.join(str(kind) for kind in kinds)}",
                _MEASURE,
            )
        )
    return kinds[0] if kinds else "identity"


def _refuse(name: str, layer: nn.Module, reason: str, remedy: str) -> NoReturn:
    where = f"layer {name} ({type(layer).__name__})" if name else f"the model ({type(layer).__name__})"
    raise UnsupportedNetwork(sentence(_MUST, f"{where} {reason}", remedy))
