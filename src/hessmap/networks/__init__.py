"""What is differentiated: architectures as frozen descriptions; torch loads only to build or describe one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hessmap.networks.activations import (
    ACTIVATIONS,
    Activation,
    ActivationKind,
    Polynomial,
    activation_of,
    is_homogeneous,
)
from hessmap.networks.architecture import Architecture, parse_network
from hessmap.networks.arguments import checked_counts
from hessmap.networks.convolutional import Convolutional, Convolutions, ImageConvolutional, LocallyConnected
from hessmap.networks.fully_connected import FullyConnected
from hessmap.networks.residual import Residual
from hessmap.networks.self_attention import SelfAttention

if TYPE_CHECKING:
    from hessmap.networks.build import (
        INITIALISATIONS,
        AttentionModule,
        ResidualBlock,
        initialise,
    )
    from hessmap.networks.description import describe
    from hessmap.networks.module_tree import (
        Erf,
        Named,
        PolynomialActivation,
        Rules,
        Shape,
        Unreadable,
        activation_kind,
        activation_module,
        is_elementwise,
        sequential_layers,
        shape_after,
    )

_NEEDS_TORCH = {
    "AttentionModule": "build",
    "Erf": "module_tree",
    "INITIALISATIONS": "build",
    "Named": "module_tree",
    "PolynomialActivation": "module_tree",
    "ResidualBlock": "build",
    "Rules": "module_tree",
    "Shape": "module_tree",
    "Unreadable": "module_tree",
    "activation_kind": "module_tree",
    "activation_module": "module_tree",
    "describe": "description",
    "initialise": "build",
    "is_elementwise": "module_tree",
    "sequential_layers": "module_tree",
    "shape_after": "module_tree",
}

__all__ = [
    "ACTIVATIONS",
    "INITIALISATIONS",
    "Activation",
    "ActivationKind",
    "Architecture",
    "AttentionModule",
    "Convolutional",
    "Convolutions",
    "Erf",
    "FullyConnected",
    "ImageConvolutional",
    "LocallyConnected",
    "Named",
    "Polynomial",
    "PolynomialActivation",
    "Residual",
    "ResidualBlock",
    "Rules",
    "SelfAttention",
    "Shape",
    "Unreadable",
    "activation_kind",
    "activation_module",
    "activation_of",
    "checked_counts",
    "describe",
    "initialise",
    "is_elementwise",
    "is_homogeneous",
    "parse_network",
    "sequential_layers",
    "shape_after",
]


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_NEEDS_TORCH[name]}"), name)
