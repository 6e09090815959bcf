"""The activations as torch modules: those torch lacks, and the way from a name to a module."""

from __future__ import annotations

import torch
from torch import nn

from hessmap.networks.activations import Activation, Polynomial, activation_of


class Erf(nn.Module):
    """The error function, element by element.

    >>> Erf()(torch.zeros(1))
    tensor([0.])
    """

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.erf(inputs)


class PolynomialActivation(nn.Module):
    """A ``Polynomial`` evaluated by Horner's rule, element by element.

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


MODULES: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "erf": Erf,
    "gelu": nn.GELU,
}


def activation_module(activation: Activation) -> nn.Module:
    """A fresh module for an activation, by its name or its object.

    >>> activation_module("leaky_relu")
    LeakyReLU(negative_slope=0.01)
    """
    known = activation_of(activation)
    return PolynomialActivation(known) if isinstance(known, Polynomial) else MODULES[known]()
