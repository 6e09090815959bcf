"""What is differentiated: architectures as frozen descriptions; torch loads only to build or describe one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hessmap.networks.activations import ACTIVATIONS, Activation, Polynomial, activation_of
from hessmap.networks.architecture import Architecture, parse_network
from hessmap.networks.convolutional import Convolutional, ImageConvolutional
from hessmap.networks.fully_connected import FullyConnected
from hessmap.networks.locally_connected import LocallyConnected
from hessmap.networks.residual import Residual
from hessmap.networks.self_attention import SelfAttention

if TYPE_CHECKING:
    from hessmap.networks.build import (
        INITIALISATIONS,
        AttentionModule,
        Erf,
        PolynomialActivation,
        ResidualBlock,
        activation_module,
        initialise,
    )
    from hessmap.networks.description import describe

_NEEDS_TORCH = {
    "INITIALISATIONS": "build",
    "AttentionModule": "build",
    "Erf": "build",
    "PolynomialActivation": "build",
    "ResidualBlock": "build",
    "activation_module": "build",
    "describe": "description",
    "initialise": "build",
}

__all__ = [
    "ACTIVATIONS",
    "INITIALISATIONS",
    "Activation",
    "Architecture",
    "AttentionModule",
    "Convolutional",
    "Erf",
    "FullyConnected",
    "ImageConvolutional",
    "LocallyConnected",
    "Polynomial",
    "PolynomialActivation",
    "Residual",
    "ResidualBlock",
    "SelfAttention",
    "activation_module",
    "activation_of",
    "describe",
    "initialise",
    "parse_network",
]


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_NEEDS_TORCH[name]}"), name)
