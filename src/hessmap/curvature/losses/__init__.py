"""Losses: one a file, each with value, gradient, output Hessian and its square-root factor."""

from hessmap.curvature.losses.as_loss import LOSSES, AnyLoss, as_loss
from hessmap.curvature.losses.cross_entropy import CrossEntropy
from hessmap.curvature.losses.log_cosh import LogCosh
from hessmap.curvature.losses.loss import Loss
from hessmap.curvature.losses.model_loss import LabelledCall, ModelLoss, recognised_loss, require_parts
from hessmap.curvature.losses.next_token import next_token
from hessmap.curvature.losses.positions import PositionLoss
from hessmap.curvature.losses.squared import Squared
from hessmap.curvature.losses.user_losses import FunctionLoss, ModuleLoss

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
    "PositionLoss",
    "Squared",
    "as_loss",
    "next_token",
    "recognised_loss",
    "require_parts",
]
