"""Losses: one a file, each with value, gradient, output Hessian and its square-root factor."""

from hessmap.losses.base import Loss, output_roots, signs_of
from hessmap.losses.cross_entropy import CrossEntropy
from hessmap.losses.elementwise import LogCosh, Squared
from hessmap.losses.positions import PositionLoss
from hessmap.losses.resolve import (
    LOSSES,
    AnyLoss,
    FunctionLoss,
    LabelledCall,
    ModelLoss,
    ModuleLoss,
    ObjectiveLoss,
    PerSample,
    as_loss,
    is_torch_function,
    next_token,
    recognised_loss,
    require_parts,
)

__all__ = [
    "LOSSES",
    "AnyLoss",
    "CrossEntropy",
    "FunctionLoss",
    "LabelledCall",
    "LogCosh",
    "Loss",
    "ModelLoss",
    "ModuleLoss",
    "ObjectiveLoss",
    "PerSample",
    "PositionLoss",
    "Squared",
    "as_loss",
    "is_torch_function",
    "next_token",
    "output_roots",
    "recognised_loss",
    "require_parts",
    "signs_of",
]
