"""The loss that is the model's own output: its derivatives by the outputs."""

from __future__ import annotations

import torch

from hessmap.losses import ModelLoss


def test_the_derivatives_of_a_loss_that_is_the_output_are_one_and_zero() -> None:
    loss, targets = ModelLoss(), torch.zeros(5)
    outputs = torch.randn(5, 1, dtype=torch.float64, requires_grad=True)
    values = loss.value(outputs, targets)
    assert torch.equal(values, outputs[:, 0])
    (slopes,) = torch.autograd.grad(values.sum(), outputs)
    assert torch.equal(loss.gradient(outputs, targets), slopes)
    curvature = loss.hessian(outputs, targets)
    assert curvature.shape == (5, 1, 1)  # a matrix of outputs for every sample
    assert not curvature.any()
    assert curvature.dtype == outputs.dtype
