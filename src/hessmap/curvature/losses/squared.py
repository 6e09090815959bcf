"""Half the squared distance."""

from __future__ import annotations

import torch
from torch import Tensor

from hessmap.curvature.losses.loss import Loss, one_hot_targets


class Squared(Loss):
    """1/2 ||output - target||^2; integer labels are taken as one-hot."""

    name = "squared"

    def prepare(self, targets: Tensor, output_dim: int) -> Tensor:
        return one_hot_targets(targets, output_dim)

    def value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return 0.5 * (outputs - targets).square().sum(1)

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs - targets

    def hessian(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.eye(outputs.shape[1], dtype=outputs.dtype, device=outputs.device).expand(len(outputs), -1, -1)

    def hessian_root(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.hessian(outputs, targets)
