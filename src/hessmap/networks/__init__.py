"""What is differentiated: architectures as frozen descriptions; torch loads only to build or describe one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hessmap.networks.activations import ACTIVATIONS, Activation, Polynomial, activation_of
from hessmap.networks.architecture import Architecture, parse_network
from hessmap.networks.convolutional import Convolutional
from hessmap.networks.fully_connected import FullyConnected
from hessmap.networks.image_convolutional import ImageConvolutional
from hessmap.networks.locally_connected import LocallyConnected
from hessmap.networks.residual import Residual
from hessmap.networks.self_attention import SelfAttention

if TYPE_CHECKING:
    from hessmap.networks.description import describe
    from hessmap.networks.initialisation import INITIALISATIONS, initialise
    from hessmap.networks.modules import Erf, PolynomialActivation, activation_module
    from hessmap.networks.residual_module import ResidualBlock
    from hessmap.networks.self_attention_module import AttentionModule

_NEEDS_TORCH = {
    "INITIALISATIONS": "initialisation",
    "AttentionModule": "self_attention_module",
    "Erf": "modules",
    "PolynomialActivation": "modules",
    "ResidualBlock": "residual_module",
    "activation_module": "modules",
    "describe": "description",
    "initialise": "initialisation",
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
