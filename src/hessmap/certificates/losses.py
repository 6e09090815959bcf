"""What a certificate bounds: a loss of one answer in [0, 1], and the smooth function above it that a fit lowers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import log
from typing import ClassVar

import torch
from torch import Tensor, nn

from hessmap.errors import require, unknown_name


class BoundedLoss(ABC):
    """A loss in [0, 1] for every answer; one that is not a number counts 1."""

    name: ClassVar[str]
    is_binary: ClassVar[bool] = True  # 0 or 1, an error
    promise: ClassVar[str] = "errs on at most {bound} of unseen data"

    @abstractmethod
    def check_form(self, targets: Tensor, name: str) -> None:
        """Refuse targets of a wrong kind before the network is asked."""

    @abstractmethod
    def checked_targets(self, targets: Tensor, num_outputs: int, name: str) -> Tensor:
        """The targets as the loss takes them; ``name`` says whose they are."""

    @abstractmethod
    def surrogate(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over a batch of something smooth that is never below the loss."""

    @abstractmethod
    def raw_values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of every sample where the outputs are finite."""

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of every sample, in float64."""
        found = self.raw_values(outputs, targets).double()
        return torch.where(outputs.flatten(1).isfinite().all(1), found, 1.0)


class ClassificationError(BoundedLoss):
    """1 where the largest output is not the label; the surrogate is the cross-entropy over log 2."""

    name = "cross_entropy"

    def check_form(self, targets: Tensor, name: str) -> None:
        is_labels = targets.ndim == 1 and not targets.is_floating_point() and not targets.is_complex()
        require(is_labels, f"the targets of {name} must be a vector of labels", f"got {targets.dtype}")

    def checked_targets(self, targets: Tensor, num_outputs: int, name: str) -> Tensor:
        remedy = 'Use loss="bce" for a network with one logit' if num_outputs == 1 else ""
        _require_range(targets.long(), num_outputs, remedy)
        return targets.long()

    def surrogate(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets) / log(2)

    def raw_values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.argmax(1) != targets


class BinaryError(BoundedLoss):
    """1 where the sign of the one logit is not that of the label 0 or 1; the surrogate is the cross-entropy / log 2."""

    name = "bce"

    def check_form(self, targets: Tensor, name: str) -> None:
        is_vector = targets.numel() == len(targets)
        require(is_vector, f"the targets of {name} must be one label per sample", f"got {tuple(targets.shape)}")
        is_labels = bool(((targets == 0) | (targets == 1)).all())
        require(is_labels, f"the targets of {name} must be 0 or 1", "others were found")

    def checked_targets(self, targets: Tensor, num_outputs: int, name: str) -> Tensor:
        require(num_outputs == 1, "binary cross-entropy needs one output", f"the network has {num_outputs}")
        return targets.reshape(-1).long()

    def surrogate(self, outputs: Tensor, targets: Tensor) -> Tensor:
        logits = outputs[:, 0]
        return nn.functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype)) / log(2)

    def raw_values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs[:, 0] > 0) != (targets == 1)


class ClippedSquaredError(BoundedLoss):
    """min(1, ||output - target||^2); the surrogate is the squared error as it is. Scale the targets by a constant."""

    name = "squared"
    is_binary = False
    promise = "has a mean squared error (clipped at 1) on unseen data of at most {bound}"

    def check_form(self, targets: Tensor, name: str) -> None:
        require(targets.is_floating_point(), f"the targets of {name} must be real numbers", f"got {targets.dtype}")
        require(bool(targets.isfinite().all()), f"the targets of {name} must be finite", "some are not")

    def checked_targets(self, targets: Tensor, num_outputs: int, name: str) -> Tensor:
        flat = targets.reshape(len(targets), -1)
        wanted = f"the targets of {name} must have {num_outputs} values per sample"
        require(flat.shape[1] == num_outputs, wanted, f"got shape {tuple(targets.shape)}")
        return flat

    def surrogate(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets.to(outputs.dtype)).square().sum(1).mean()

    def raw_values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.double() - targets.double()).square().sum(1).clamp(max=1.0)


LOSSES: dict[str, BoundedLoss] = {
    loss.name: loss for loss in (ClassificationError(), BinaryError(), ClippedSquaredError())
}


def bounded_loss(name: object) -> BoundedLoss:
    """The loss of that name.

    Args:
        name: "cross_entropy", "bce" or "squared".

    Returns:
        BoundedLoss: The loss in [0, 1] that a certificate bounds, with the surrogate that a fit minimises.

    Raises:
        UnknownName: If there is no such loss.

    Example:
        >>> bounded_loss("bce").values(torch.tensor([[2.0], [-1.0]]), torch.tensor([1, 1])).tolist()
        [0.0, 1.0]
    """
    if not isinstance(name, str) or name not in LOSSES:
        raise unknown_name("loss", name, LOSSES)
    return LOSSES[name]


def _require_range(labels: Tensor, num_classes: int, remedy: str) -> None:
    low, high = labels.aminmax()
    must = f"labels must be in 0..{num_classes - 1}, the outputs of the network"
    require(int(low) >= 0 and int(high) < num_classes, must, f"they range from {int(low)} to {int(high)}", remedy)
