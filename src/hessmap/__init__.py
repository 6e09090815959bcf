"""hessmap: the curvature of neural networks, predicted, measured, explained and certified.

Names are loaded when they are first used, so that ``import hessmap`` and predictions need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "hessmap.networks": ("FullyConnected", "Polynomial", "describe"),
    "hessmap.theory": ("predict_ranks",),
    "hessmap.curvature": (
        "Problem",
        "loss_hessian",
        "outer_product_hessian",
        "functional_hessian",
        "output_jacobian",
        "tangent_kernel",
    ),
    "hessmap.measurement": (
        "spectrum",
        "numerical_rank",
        "effective_dimension",
        "reconstruction_error",
        "subspace_overlap",
        "solve",
        "certified_rank",
        "generic_rank",
    ),
    "hessmap.studies.map": ("map",),
}
_ROOMS = ("datasets", "networks", "curvature", "measurement", "theory", "training", "studies", "results", "errors")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*sorted(_HOME_OF), *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"hessmap.{name}")
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'hessmap' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


if TYPE_CHECKING:
    from hessmap import curvature, datasets, errors, measurement, networks, results, studies, theory, training
