"""Losses that are sums over the outputs: half the squared distance, and log cosh of the residual."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hessmap.losses.base import Loss, VectorProduct, one_hot_targets
from hessmap.losses.positions import over_positions


class _OverOutputs(Loss):
    """A sum over the outputs; integer labels are taken as one-hot.

    Args:
        class_axis: Axis that is summed over where a sample has outputs at several positions; positions are
            averaged. Defaults to the last one.
    """

    def __init__(self, class_axis: int | None = None) -> None:
        self.class_axis = class_axis

    def for_output_shape(self, output_shape: tuple[int, ...], targets: Tensor) -> Loss:
        return over_positions(self, output_shape, targets, self.class_axis)

    def prepare(self, targets: Tensor, output_dim: int) -> Tensor:
        return one_hot_targets(targets, output_dim)


class LogCosh(_OverOutputs):
    """sum_c log cosh(output_c - target_c): squared for small residuals, absolute for large ones.

    Args:
        class_axis: Axis that is summed over where a sample has outputs at several positions; positions are
            averaged. Defaults to the last one.
    """

    name = "log_cosh"

    def value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        # Not abs(): autograd takes its slope at 0 for 0, and would lose all curvature of a sample that is fitted.
        residual = outputs - targets
        size = torch.where(residual >= 0, residual, -residual)
        return (size + torch.log1p(torch.exp(-2 * size)) - math.log(2)).sum(1)

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.tanh(outputs - targets)

    def hessian(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.diag_embed(self._sech(outputs - targets).square())

    def hessian_product(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> VectorProduct:
        diagonal = weights[:, None] * self._sech(outputs - targets).square()
        return lambda vectors: diagonal * vectors

    def hessian_factor(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.diag_embed(self._sech(outputs - targets))

    @staticmethod
    def _sech(residual: Tensor) -> Tensor:
        """1 / cosh without overflow, and without the cancellation of 1 - tanh^2."""
        decay = torch.exp(-residual.abs())
        return 2 * decay / (1 + decay.square())


class Squared(_OverOutputs):
    """Half the squared distance, 1/2 ||output - target||^2; integer labels are taken as one-hot.

    Args:
        class_axis: Axis that is summed over where a sample has outputs at several positions; positions are
            averaged. Defaults to the last one.
    """

    name = "squared"
    is_log_likelihood = True

    def value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return 0.5 * (outputs - targets).square().sum(1)

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs - targets

    def hessian(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.eye(outputs.shape[1], dtype=outputs.dtype, device=outputs.device).expand(len(outputs), -1, -1)

    def hessian_product(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> VectorProduct:
        return lambda vectors: weights[:, None] * vectors

    def hessian_factor(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.hessian(outputs, targets)
