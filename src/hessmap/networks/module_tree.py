"""The torch modules of activations, and the one walk over a tree of modules: the layers of nested Sequentials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NoReturn

import torch
from torch import nn
from torch.nn.modules import module as _of_all_modules
from torch.nn.utils.parametrize import is_parametrized

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.networks.activations import (
    ACTIVATIONS,
    OTHER_ELEMENTWISE,
    Activation,
    ActivationKind,
    Polynomial,
    activation_of,
)

# What runs when a module is called.
_CALLED = ("forward", "__call__", "_call_impl", "_wrapped_call_impl")

Named = tuple[str, nn.Module]
Shape = tuple[int, ...]


class Erf(nn.Module):
    """The error function, element by element.

    Example:
        >>> Erf()(torch.zeros(1))
        tensor([0.])
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.erf(inputs)


class PolynomialActivation(nn.Module):
    """A ``Polynomial`` as a torch module, evaluated by Horner's rule element by element.

    Args:
        polynomial: The polynomial.

    Example:
        >>> PolynomialActivation(Polynomial((0, 1, 0.5)))(torch.tensor([2.0]))
        tensor([4.])
    """

    def __init__(self, polynomial: Polynomial) -> None:
        super().__init__()
        self.polynomial = polynomial

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        highest, *lower = reversed(self.polynomial.coefficients)
        value = torch.full_like(inputs, highest)
        for coefficient in lower:
            value = value * inputs + coefficient
        return value

    def extra_repr(self) -> str:
        return str(self.polynomial)


def _module_class(kind: ActivationKind) -> type[nn.Module]:
    found: type[nn.Module] = globals()[kind.module] if kind.module in globals() else getattr(nn, kind.module)
    return found


def activation_module(activation: Activation) -> nn.Module:
    """Build a new module for an activation.

    Args:
        activation: Name of ``ACTIVATIONS``, "polynomial(c0,c1,...)" or a ``Polynomial``.

    Returns:
        nn.Module: The elementwise function, without parameters.

    Raises:
        UnknownName: If the table has no such name.

    Example:
        >>> activation_module("leaky_relu")
        LeakyReLU(negative_slope=0.01)
    """
    known = activation_of(activation)
    if isinstance(known, Polynomial):
        return PolynomialActivation(known)
    kind = ACTIVATIONS[known]
    return _module_class(kind)(**kind.options)


def activation_kind(module: nn.Module) -> ActivationKind | None:
    """Find the row of the activation table to which a module belongs, whatever its options are.

    Args:
        module: Any module. Only exact types count, because a subclass may compute something else.

    Returns:
        The row, also of a module without a name in architectures; None for all others, polynomials included.

    Example:
        >>> activation_kind(nn.LeakyReLU(0.5)).negative_slope(nn.LeakyReLU(0.5)), activation_kind(nn.Softmax(1))
        (0.5, None)
    """
    rows = (*ACTIVATIONS.values(), *OTHER_ELEMENTWISE)
    return next((kind for kind in rows if type(module) is _module_class(kind)), None)


def is_elementwise(module: nn.Module) -> bool:
    """Check whether a module is a known function of every entry on its own.

    Args:
        module: Any module.

    Returns:
        True for every row of the activation table except the identity, and for polynomials.

    Example:
        >>> is_elementwise(nn.SiLU()), is_elementwise(nn.Identity()), is_elementwise(nn.Softmax(1))
        (True, False, False)
    """
    if type(module) is nn.Identity:
        return False
    return type(module) is PolynomialActivation or activation_kind(module) is not None


@dataclass(frozen=True)
class Rules:
    """What a reader of models requires of a network, and the remedy for a network that does not fulfil it.

    Args:
        must: The requirement, for errors.
        otherwise: What to do with another network, for errors.
    """

    must: str
    otherwise: str

    def refuse(self, name: str, layer: nn.Module, reason: str, remedy: str | None = None) -> NoReturn:
        where = f"layer {name} ({type(layer).__name__})" if name else f"the model ({type(layer).__name__})"
        raise UnsupportedNetwork(sentence(self.must, f"{where} {reason}", self.otherwise if remedy is None else remedy))

    def refuse_shared(self, layers: Sequence[Named]) -> None:
        """No weight is used twice: the sizes alone would not say so."""
        owners: dict[int, str] = {}
        for name, layer in layers:
            for parameter in layer.parameters():
                if id(parameter) in owners:
                    self.refuse(name, layer, f"shares a parameter with layer {owners[id(parameter)]}")
                owners[id(parameter)] = name

    def activation(self, name: str, layer: nn.Module) -> Activation:
        """The activation a layer is, "identity" for what changes nothing; a refusal for all else."""
        if type(layer) is nn.Dropout and (layer.p == 0 or not layer.training):
            return "identity"
        if type(layer) is PolynomialActivation:
            return layer.polynomial
        kind = activation_kind(layer)
        same_class = [
            (known, row) for known, row in ACTIVATIONS.items() if kind is not None and row.module == kind.module
        ]
        for activation, row in same_class:
            if all(getattr(layer, option) == value for option, value in row.options.items()):
                return activation
        for activation, row in same_class:
            option = next(option for option, value in row.options.items() if getattr(layer, option) != value)
            got = f"has {option}={getattr(layer, option)!r} where '{activation}' has {row.options[option]!r}"
            return self.refuse(name, layer, got)
        return self.refuse(name, layer, "is neither a linear layer nor a known activation")

    def refuse_final(self, found: list[tuple[str, Activation]]) -> None:
        """Nothing follows the last layer; ``found`` are the activations that do."""
        if found:
            remedy = "Leave it out, or make it part of the loss (softmax belongs to 'cross_entropy')"
            raise UnsupportedNetwork(sentence(self.must, f"layer {found[0][0]} follows the last nn.Linear", remedy))

    def shared_activation(self, following: Iterable[list[tuple[str, Activation]]]) -> Activation:
        """The one activation after every hidden layer; ``following`` holds what follows each of them."""
        kinds: list[Activation] = []
        for found in following:
            if len(found) > 1:
                names = " and ".join(name for name, _ in found)
                raise UnsupportedNetwork(sentence(self.must, f"layers {names} follow one another", self.otherwise))
            kinds.append(found[0][1] if found else "identity")
        if any(kind != kinds[0] for kind in kinds):
            raise UnsupportedNetwork(
                sentence(
                    "all hidden layers of a described network have the same activation",
                    f"they have {', '.join(str(kind) for kind in kinds)}",
                    self.otherwise,
                )
            )
        return kinds[0] if kinds else "identity"


class Unreadable(Exception):
    """Why a layer cannot be read, in words that follow the name of its kind."""


def shape_after(module: nn.Module, shape: Shape) -> Shape:
    """The shape of a sample after an nn.Flatten or nn.Unflatten.

    Args:
        module: The module.
        shape: Shape of a sample before it.

    Returns:
        The shape of a sample after it.

    Raises:
        Unreadable: If the module mixes samples, or the sizes do not fit.

    Example:
        >>> shape_after(nn.Flatten(2), (2, 3, 4)), shape_after(nn.Unflatten(1, (2, -1)), (6,))
        ((2, 12), (2, 3))
    """
    ndim = len(shape) + 1
    if isinstance(module, nn.Unflatten):
        axis = int(module.dim) % ndim - 1
        sizes = tuple(int(size) for size in module.unflattened_size)
        known = prod(size for size in sizes if size > 0)
        parts = tuple(shape[axis] // known if size < 0 else size for size in sizes)
        if axis < 0 or prod(parts) != shape[axis]:
            raise Unreadable(f" to {sizes}, but the input has shape {shape}")
        return (*shape[:axis], *parts, *shape[axis + 1 :])
    assert isinstance(module, nn.Flatten)
    start, stop = module.start_dim % ndim - 1, module.end_dim % ndim - 1
    if start < 0:
        raise Unreadable(" of the samples themselves")
    return (*shape[:start], prod(shape[start : stop + 1]), *shape[stop + 1 :])


def sequential_layers(model: nn.Module, rules: Rules) -> list[Named]:
    """List the layers of nested Sequentials in the order in which they are called.

    A module that is used twice is listed twice. A module that is not a Sequential, or a Sequential that calls its
    layers in its own way, is one layer: the caller must compare its exact type, because a subclass may compute
    something else.

    Args:
        model: The model.
        rules: What the caller requires of a network, for errors.

    Returns:
        Pairs of dotted name and module.

    Raises:
        UnsupportedNetwork: If a module has forward hooks, its own forward function, a parametrised weight or an
            empty parameter.

    Example:
        >>> rules = Rules("a chain has linear layers alone", "Its products go through autograd")
        >>> model = nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.ReLU(), nn.Flatten()))
        >>> [name for name, _ in sequential_layers(model, rules)]
        ['0', '1.0', '1.1']
    """
    return list(_layers(model, rules, ""))


def _layers(module: nn.Module, rules: Rules, name: str) -> Iterator[Named]:
    if _has_forward_hooks(module):
        rules.refuse(name, module, "has forward hooks, which may change what it computes", "Remove them first")
    if any(method in vars(module) for method in _CALLED):
        rules.refuse(name, module, "has a forward pass of its own")
    if is_parametrized(module):
        rules.refuse(name, module, "has a parametrised weight")
    if not all(parameter.numel() for parameter in module.parameters(recurse=False)):
        rules.refuse(name, module, "has an empty parameter")
    if not _calls_its_children(type(module)):
        yield name, module
        return
    for child_name, child in module._modules.items():  # named_children would show a repeated module only once
        if child is not None:
            yield from _layers(child, rules, f"{name}.{child_name}".lstrip("."))


def _has_forward_hooks(module: nn.Module) -> bool:
    everywhere = (_of_all_modules._global_forward_hooks, _of_all_modules._global_forward_pre_hooks)
    return any((module._forward_hooks, module._forward_pre_hooks, *everywhere))


def _calls_its_children(kind: type[nn.Module]) -> bool:
    """Whether a kind of module applies its children one after another, as nn.Sequential does."""
    return issubclass(kind, nn.Sequential) and all(
        getattr(kind, method) is getattr(nn.Sequential, method) for method in (*_CALLED, "__iter__")
    )
