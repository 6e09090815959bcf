"""Losses: one a file, each with value, gradient, output Hessian and its square-root factor."""

from __future__ import annotations

from torch import nn

from hessmap.curvature.losses.cross_entropy import CrossEntropy
from hessmap.curvature.losses.log_cosh import LogCosh
from hessmap.curvature.losses.loss import Loss
from hessmap.curvature.losses.squared import Squared
from hessmap.curvature.losses.torch_cross_entropy import TorchCrossEntropy
from hessmap.curvature.losses.user_losses import FunctionLoss, ModuleLoss, PerSample
from hessmap.errors import InvalidInput, sentence, unknown_name

LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (Squared, CrossEntropy, LogCosh)}

AnyLoss = str | Loss | nn.Module | PerSample


def as_loss(loss: AnyLoss) -> Loss:
    """A loss from its name, a torch loss module, or a function (outputs, targets) -> one value per sample.

    >>> as_loss("squared").name
    'squared'
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise unknown_name("loss", loss, LOSSES)
        return LOSSES[loss]()
    if isinstance(loss, type):
        must, got = "a loss must be an object, not its class", f"got the class {loss.__name__}"
        raise InvalidInput(sentence(must, got, f"Write {loss.__name__}()"))
    if isinstance(loss, nn.Module):
        return TorchCrossEntropy(loss) if TorchCrossEntropy.fits(loss) else ModuleLoss(loss)
    if callable(loss):
        return FunctionLoss(loss)
    raise unknown_name("loss", loss, LOSSES)


__all__ = [
    "LOSSES",
    "AnyLoss",
    "CrossEntropy",
    "FunctionLoss",
    "LogCosh",
    "Loss",
    "ModuleLoss",
    "Squared",
    "TorchCrossEntropy",
    "as_loss",
]
