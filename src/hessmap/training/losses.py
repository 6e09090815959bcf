"""What is minimised, one value per sample; its mean over samples is the risk."""

from __future__ import annotations

from collections.abc import Callable
from math import log

import torch
from torch import Tensor
from torch.nn import functional

from hessmap.datasets import one_hot
from hessmap.errors import require, require_name

PerSample = Callable[[Tensor, Tensor], Tensor]


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    """1/2 ||output - target||^2 of each sample.

    >>> import torch
    >>> squared(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 1.0]]))
    tensor([2.5000])
    """
    return 0.5 * (outputs - targets).square().flatten(1).sum(dim=1)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """-log softmax(output)[label] of each sample."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def log_cosh(outputs: Tensor, targets: Tensor) -> Tensor:
    """Sum of log cosh(output - target) of each sample, without overflow.

    >>> import torch
    >>> torch.autograd.functional.hessian(lambda out: log_cosh(out, torch.zeros(1, 1)).sum(), torch.zeros(1, 1)).item()
    1.0
    """
    residual = outputs - targets
    # Not abs(): autograd takes its slope at 0 for 0, and a fitted sample would have no curvature.
    distance = torch.where(residual >= 0, residual, -residual)
    return (distance + torch.log1p(torch.exp(-2 * distance)) - log(2)).flatten(1).sum(dim=1)


LOSSES: dict[str, PerSample] = {"squared": squared, "cross_entropy": cross_entropy, "log_cosh": log_cosh}


def per_sample(loss: str | PerSample) -> PerSample:
    """The function of a loss by its name, or the user's own (outputs, targets) -> one value per sample."""
    if isinstance(loss, str):
        require_name("loss", loss, LOSSES)
        return LOSSES[loss]
    return loss


def loss_name(loss: str | PerSample) -> str:
    """The name under which a result speaks of a loss."""
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)


def fitting_targets(loss: str | PerSample, targets: Tensor, outputs: Tensor) -> Tensor:
    """Targets in the form that a loss wants them, for outputs like the given ones.

    Labels become one-hot vectors under "squared" and "log_cosh"; a vector of numbers becomes a column, because
    subtracting it from a column of outputs would silently give a matrix.

    >>> import torch
    >>> fitting_targets("squared", torch.tensor([1]), torch.zeros(1, 2))
    tensor([[0., 1.]])
    """
    if loss == "cross_entropy" and not targets.is_floating_point():
        one_hot(targets, outputs.shape[1])  # its checks: a vector of labels, none of them out of range
    if loss not in ("squared", "log_cosh"):
        return targets if not targets.is_floating_point() else targets.to(outputs.dtype)
    if not targets.is_floating_point():
        require(
            outputs.shape[1] > 1,
            "integer targets are labels, which need two outputs or more",
            f"the model has {outputs.shape[1]}",
            "Pass targets.double() if they are regression targets",
        )
        return one_hot(targets, outputs.shape[1]).to(outputs.dtype)
    column = targets[:, None] if targets.ndim == 1 else targets
    require(
        column.shape[1:] == outputs.shape[1:],
        f"targets must have one value per output of the model, {tuple(outputs.shape[1:])}",
        f"each has {tuple(column.shape[1:])}",
    )
    return column.to(outputs.dtype)
