"""Half the squared distance."""

from __future__ import annotations

import torch
from torch import Tensor

from hessmap.curvature.losses.loss import Loss, VectorProduct, one_hot_targets
from hessmap.curvature.losses.positions import over_positions


class Squared(Loss):
    """1/2 ||output - target||^2; integer labels are taken as one-hot.

    At several positions the squares are summed over ``class_axis`` (the last one), and averaged over the positions.
    """

    name = "squared"
    is_log_likelihood = True

    def __init__(self, class_axis: int | None = None) -> None:
        self.class_axis = class_axis

    def fitted(self, output_shape: tuple[int, ...], targets: Tensor) -> Loss:
        return over_positions(self, output_shape, targets, self.class_axis)

    def prepare(self, targets: Tensor, output_dim: int) -> Tensor:
        return one_hot_targets(targets, output_dim)

    def value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return 0.5 * (outputs - targets).square().sum(1)

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs - targets

    def hessian(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.eye(outputs.shape[1], dtype=outputs.dtype, device=outputs.device).expand(len(outputs), -1, -1)

    def hessian_product(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> VectorProduct:
        return lambda vectors: weights[:, None] * vectors

    def hessian_root(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.hessian(outputs, targets)
