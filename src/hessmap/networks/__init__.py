"""What is differentiated: architectures as frozen descriptions; torch loads only to build or describe one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hessmap.networks.activations import ACTIVATIONS, Activation, Polynomial, activation_of
from hessmap.networks.fully_connected import FullyConnected

if TYPE_CHECKING:
    from hessmap.networks.description import describe
    from hessmap.networks.initialisation import INITIALISATIONS, initialise
    from hessmap.networks.modules import Erf, PolynomialActivation, activation_module

_NEEDS_TORCH = {
    "INITIALISATIONS": "initialisation",
    "Erf": "modules",
    "PolynomialActivation": "modules",
    "activation_module": "modules",
    "describe": "description",
    "initialise": "initialisation",
}

__all__ = [
    "ACTIVATIONS",
    "INITIALISATIONS",
    "Activation",
    "Erf",
    "FullyConnected",
    "Polynomial",
    "PolynomialActivation",
    "activation_module",
    "activation_of",
    "describe",
    "initialise",
]


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_NEEDS_TORCH[name]}"), name)
