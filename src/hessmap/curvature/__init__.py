"""What is differentiated and its Hessians: Problem, losses, operators, Jacobians."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hessmap.curvature.across_ranks import AcrossRanks, across_ranks
from hessmap.curvature.fisher import empirical_fisher, fisher
from hessmap.curvature.hessians import Hessian, functional_hessian, loss_hessian, outer_product_hessian
from hessmap.curvature.jacobian import output_jacobian, tangent_kernel
from hessmap.curvature.layout import Layout
from hessmap.curvature.losses import LOSSES, Loss, as_loss, next_token
from hessmap.curvature.operator import DenseOperator, LinearOperator, SymmetricOperator
from hessmap.curvature.problem import Problem

if TYPE_CHECKING:
    from hessmap.curvature import finite_field, layers

__all__ = [
    "LOSSES",
    "AcrossRanks",
    "DenseOperator",
    "Hessian",
    "Layout",
    "LinearOperator",
    "Loss",
    "Problem",
    "SymmetricOperator",
    "across_ranks",
    "as_loss",
    "empirical_fisher",
    "finite_field",
    "fisher",
    "functional_hessian",
    "layers",
    "loss_hessian",
    "next_token",
    "outer_product_hessian",
    "output_jacobian",
    "tangent_kernel",
]


def __getattr__(name: str) -> Any:
    if name in ("finite_field", "layers"):  # loaded when they are first used
        return import_module(f"hessmap.curvature.{name}")
    raise AttributeError(f"module 'hessmap.curvature' has no attribute {name!r}")
