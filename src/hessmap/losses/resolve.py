"""A loss from what a user passes for one: a name, a module or function of torch, a function of the user.

A loss that a model computes itself, as those of Hugging Face do when they are called with labels, is recognised by its
value: if a known loss has the same value on several batches, that one is used and all Hessians exist. Otherwise the
risk is the mean of the model's own loss over the samples, and only the loss Hessian exists.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hessmap.errors import InvalidInput, integer_or_none, require, require_name, sentence, unknown_name
from hessmap.linalg import is_answerable
from hessmap.losses.base import Loss
from hessmap.losses.cross_entropy import CrossEntropy
from hessmap.losses.elementwise import LogCosh, Squared
from hessmap.losses.user import FunctionLoss, ModuleLoss, PerSample

LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (Squared, CrossEntropy, LogCosh)}

# torch's losses by name and as functions; "squared" is half the sum of squares of a sample, "mse" torch's mean.
_MODULES: dict[str, type[nn.Module]] = {"mse": nn.MSELoss, "l1": nn.L1Loss, "bce": nn.BCEWithLogitsLoss}
_FUNCTIONS: tuple[tuple[object, type[nn.Module]], ...] = (
    (F.mse_loss, nn.MSELoss),
    (F.l1_loss, nn.L1Loss),
    (F.smooth_l1_loss, nn.SmoothL1Loss),
    (F.huber_loss, nn.HuberLoss),
    (F.cross_entropy, nn.CrossEntropyLoss),
    (F.nll_loss, nn.NLLLoss),
    (F.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss),
    (F.soft_margin_loss, nn.SoftMarginLoss),
    (F.poisson_nll_loss, nn.PoissonNLLLoss),
)

AnyLoss = str | Loss | nn.Module | PerSample


def as_loss(loss: AnyLoss, class_axis: int | None = None) -> Loss:
    """Convert what a user passes for a loss.

    Args:
        loss: A name ("squared", "cross_entropy", "log_cosh", "mse", "l1", "bce"), a loss module or function of
            torch, or a function (outputs, targets) that returns one value per sample.
        class_axis: Axis of the classes for outputs at several positions: 1 or -1. Defaults to what the shape of the
            targets determines.

    Returns:
        Loss: Value, gradient and Hessian in the outputs.

    Raises:
        UnknownName: If there is no loss of this name.
        InvalidInput: If it is a class instead of an object, or ``class_axis`` is given for a loss without classes.

    Example:
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
        require_name("loss", loss, (*LOSSES, *_MODULES))
        return LOSSES[loss]() if loss in LOSSES else _loss(_MODULES[loss]())
    if is_torch_function(loss):
        return _loss(next(module for function, module in _FUNCTIONS if loss is function)())
    if isinstance(loss, type):
        must, got = "a loss must be an object, not its class", f"got the class {loss.__name__}"
        raise InvalidInput(sentence(must, got, f"Write {loss.__name__}()"))
    if type(loss) is nn.CrossEntropyLoss and loss.reduction in ("mean", "none", "sum"):
        return CrossEntropy.of_module(loss)
    if isinstance(loss, nn.Module):
        return ModuleLoss(loss)
    if callable(loss):
        return FunctionLoss(loss)
    raise unknown_name("loss", loss, LOSSES)


def is_torch_function(loss: object) -> bool:
    """Check for a loss of ``torch.nn.functional`` that is treated as its module.

    Args:
        loss: Any object.

    Returns:
        True for ``F.mse_loss``, ``F.cross_entropy`` and the like.
    """
    return any(loss is function for function, _ in _FUNCTIONS)


def next_token(loss: AnyLoss = "cross_entropy") -> CrossEntropy:
    """Cross-entropy of output t with label t + 1, where the labels are the tokens of the inputs themselves.

    The first label and the last output are unused, so that a sample of T tokens counts T - 1 times; labels that are
    ``ignore_index`` (-100) do not count. Outputs are (samples, tokens, classes).

    Args:
        loss: A cross-entropy, by name or as a module of torch. Defaults to "cross_entropy".

    Returns:
        CrossEntropy: The loss with shifted labels.

    Raises:
        InvalidInput: If it is another loss.

    Example:
        >>> next_token().name
        'next-token cross_entropy'
    """
    base = as_loss(loss)
    if not isinstance(base, CrossEntropy):
        remedy = 'Use next_token("cross_entropy") or next_token(nn.CrossEntropyLoss(...))'
        raise InvalidInput(sentence("shifted labels need a cross-entropy", f"the loss is '{base.name}'", remedy))
    shifted = copy.copy(base)
    shifted.name, shifted.predicts_next = f"next-token {base.name}", True
    shifted.class_axis = -1 if base.class_axis is None else base.class_axis
    return shifted


_SAME = 1e-5  # relative: Hugging Face takes the loss of a float64 model in float32


class LabelledCall(NamedTuple):
    """A model called with its labels.

    Args:
        outputs: The main output of the model.
        loss: The loss that the model computed.
        labels: The labels.
    """

    outputs: Tensor
    loss: Tensor
    labels: Tensor


class ModelLoss(Loss):
    """The outputs are the losses of the samples themselves."""

    name = "the model's own"

    def value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs[:, 0]

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.ones_like(outputs)

    def hessian(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.new_zeros(len(outputs), 1, 1)


class ObjectiveLoss(ModelLoss):
    """The loss of a problem whose outputs are the values of an objective on whole batches.

    Args:
        name: Name of the objective.
        is_sum: Whether the risk is the sum over batches instead of their mean. Defaults to False.
    """

    def __init__(self, name: str, is_sum: bool = False) -> None:
        self.name, self.is_sum = name, is_sum


def recognised_loss(calls: Sequence[LabelledCall]) -> Loss | None:
    """Recognise a model's own loss by its value.

    Args:
        calls: Calls of the model on several batches.

    Returns:
        The first known loss that has the same value on all batches; None if there is none.
    """
    is_elementwise = all(call.labels.numel() == call.outputs.numel() for call in calls)
    return next((loss for loss in _candidates(is_elementwise) if all(_is_same(loss, call) for call in calls)), None)


def _candidates(is_elementwise: bool) -> Iterator[Loss]:
    """The losses that a model's own is compared with: those of torch with a target for every output only where there
    is one, because torch would broadcast the others with a warning."""
    yield next_token()
    yield as_loss("cross_entropy", class_axis=-1)
    yield as_loss(nn.CrossEntropyLoss())
    yield as_loss("squared")
    if is_elementwise:
        yield as_loss(nn.MSELoss())
        yield as_loss(nn.BCEWithLogitsLoss())


def _is_same(loss: Loss, call: LabelledCall) -> bool:
    outputs = call.outputs.detach().double()
    labels = call.labels.to(outputs.device)
    try:
        fitted = loss.for_output_shape(tuple(outputs.shape[1:]), labels).to(outputs.dtype, outputs.device)
        flat = outputs.reshape(len(outputs), -1)
        targets = fitted.prepare(labels, flat.shape[1])
        normaliser = fitted.target_weights(targets).sum()
        value = float(fitted.value(flat, targets).double().sum() / normaliser)
    except (RuntimeError, ValueError, TypeError) as error:  # labels of another kind than this loss takes
        if not is_answerable(error, refusals=True):
            raise
        return False
    own = float(call.loss)
    return abs(value - own) <= _SAME * max(abs(own), 1e-3)


def require_parts(loss: Loss, what: str) -> None:
    """Raise unless a loss is a known function of the outputs, so that H_L = H_o + H_f is defined.

    Args:
        loss: The loss of a problem.
        what: What was asked for, in words for the error.

    Raises:
        InvalidInput: If the outputs are the losses themselves (a model's own loss, or an objective).
    """
    if isinstance(loss, ObjectiveLoss):
        must = f"{what} is not defined for this objective"
        got = f"'{loss.name}' is not a loss of the outputs and targets of single samples"
        raise InvalidInput(sentence(must, got, "Use loss_hessian(problem), or pass loss= and targets= to Problem"))
    if isinstance(loss, ModelLoss):
        must = f"{what} needs a loss that is a known function of the outputs"
        got = "the model computes its own, and only its whole Hessian can be had"
        raise InvalidInput(sentence(must, got, "Use loss_hessian(problem), or pass the loss to Problem"))
