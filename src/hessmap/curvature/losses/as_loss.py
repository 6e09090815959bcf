"""A loss from what a user passes for one."""

from __future__ import annotations

import copy

from torch import nn

from hessmap.curvature.losses.cross_entropy import CrossEntropy
from hessmap.curvature.losses.log_cosh import LogCosh
from hessmap.curvature.losses.loss import Loss
from hessmap.curvature.losses.squared import Squared
from hessmap.curvature.losses.user_losses import FunctionLoss, ModuleLoss, PerSample
from hessmap.errors import InvalidInput, integer_or_none, require, require_name, sentence, unknown_name

LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (Squared, CrossEntropy, LogCosh)}

AnyLoss = str | Loss | nn.Module | PerSample


def as_loss(loss: AnyLoss, class_axis: int | None = None) -> Loss:
    """A loss from its name, a torch loss module, or a function (outputs, targets) -> one value per sample.

    ``class_axis`` is for outputs at several positions: 1 or -1.

    >>> as_loss("squared").name
    'squared'
    """
    found = _loss(loss)
    if class_axis is None:
        return found
    must, got = "class_axis must be for a loss over classes", f"the loss is '{found.name}'"
    require(isinstance(found, CrossEntropy | Squared | LogCosh), must, got)
    found = copy.copy(found)
    axis = integer_or_none(class_axis)
    found.class_axis = class_axis if axis is None else axis  # type: ignore[attr-defined]
    return found


def _loss(loss: AnyLoss) -> Loss:
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str):
        require_name("loss", loss, LOSSES)
        return LOSSES[loss]()
    if isinstance(loss, type):
        must, got = "a loss must be an object, not its class", f"got the class {loss.__name__}"
        raise InvalidInput(sentence(must, got, f"Write {loss.__name__}()"))
    if type(loss) is nn.CrossEntropyLoss and loss.reduction in ("mean", "none"):
        return CrossEntropy.of_module(loss)
    if isinstance(loss, nn.Module):
        return ModuleLoss(loss)
    if callable(loss):
        return FunctionLoss(loss)
    raise unknown_name("loss", loss, LOSSES)
