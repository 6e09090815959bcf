"""The loss that a model computes itself, as those of Hugging Face do when they are called with labels.

It is recognised by its value: where a loss that is known gives the same number on several batches, that one is used
and all Hessians exist. Else the risk is the mean of the model's own loss over the samples, and only its own Hessian.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hessmap.curvature.fallbacks import is_answerable
from hessmap.curvature.losses.as_loss import as_loss
from hessmap.curvature.losses.loss import Loss
from hessmap.curvature.losses.next_token import next_token
from hessmap.errors import InvalidInput, sentence

_SAME = 1e-5  # relative: Hugging Face takes the loss of a float64 model in float32


class LabelledCall(NamedTuple):
    """A model called with its labels: what it gave out, its loss, and the labels."""

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


def recognised_loss(calls: Sequence[LabelledCall]) -> Loss | None:
    """The first known loss whose value is the model's own on all of some batches; None if there is none."""
    return next((loss for loss in _candidates() if all(_is_same(loss, call) for call in calls)), None)


def _candidates() -> Iterator[Loss]:
    yield next_token()
    yield as_loss("cross_entropy", class_axis=-1)
    yield as_loss(nn.CrossEntropyLoss())
    yield as_loss(nn.MSELoss())
    yield as_loss("squared")
    yield as_loss(nn.BCEWithLogitsLoss())


def _is_same(loss: Loss, call: LabelledCall) -> bool:
    outputs = call.outputs.detach().double()
    labels = call.labels.to(outputs.device)
    try:
        fitted = loss.fitted(tuple(outputs.shape[1:]), labels).to(outputs.dtype, outputs.device)
        flat = outputs.reshape(len(outputs), -1)
        targets = fitted.prepare(labels, flat.shape[1])
        mass = fitted.mass(targets).sum()
        value = float(fitted.value(flat, targets).double().sum() / mass)
    except (RuntimeError, ValueError, TypeError) as error:  # labels of another kind than this loss takes
        if not is_answerable(error, refusals=True):
            raise
        return False
    own = float(call.loss)
    return abs(value - own) <= _SAME * max(abs(own), 1e-3)


def require_parts(loss: Loss, what: str) -> None:
    """Raise unless a loss says how it depends on the outputs."""
    if isinstance(loss, ModelLoss):
        must = f"{what} needs a loss that is a known function of the outputs"
        got = "the model computes its own, and only its whole Hessian can be had"
        raise InvalidInput(sentence(must, got, "Use loss_hessian(problem), or pass the loss to Problem"))
