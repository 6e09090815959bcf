"""The risk of a problem and its first derivatives, by autograd alone, which takes every model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hessmap.curvature.graph_memory import samples_at_once
from hessmap.curvature.nested_tensors import Inputs
from hessmap.curvature.second_derivatives import twice_differentiable

if TYPE_CHECKING:
    from hessmap.curvature.problem import Problem


PASS = 4096  # samples of a forward pass at once
Look = Callable[[Inputs, Tensor, Tensor, Tensor], None]  # at inputs, targets, outputs and losses of a batch


@torch.no_grad()
def risk_value(problem: Problem, look: Look | None = None) -> float:
    """The weighted sum of losses, and the penalty; every batch is shown to ``look``."""
    total = problem.l2 * float(problem.parameters.square().sum())
    for inputs, targets, weights in problem.batches(PASS):
        outputs = problem.forward(problem.named, inputs).detach()  # a model may take gradients of its own
        with torch.set_grad_enabled(look is not None):
            losses = problem.loss.value(outputs, targets)
        if look is not None:
            look(inputs, targets, outputs, losses)
        total += float(weights @ losses.detach().to(weights.dtype))
    return total


@twice_differentiable()
@torch.inference_mode(False)
def risk_gradient(problem: Problem) -> Tensor:
    """The gradient of the risk, flat."""
    total = 2 * problem.l2 * problem.parameters
    for inputs, targets, weights in problem.batches(samples_at_once(problem, 1)):
        outputs, vjp = outputs_and_vjp(problem, inputs)
        slope = weights[:, None] * problem.loss.gradient(outputs, targets)
        total = total + vjp(slope.to(outputs.dtype))
    return total


def outputs_and_vjp(problem: Problem, inputs: Inputs) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The outputs of some samples, and the product of a cotangent with their Jacobian, flat."""
    leaves = {name: value.detach().requires_grad_() for name, value in problem.named.items()}
    with torch.enable_grad():
        outputs = problem.forward(leaves, inputs)

    def vjp(cotangent: Tensor) -> Tensor:
        if not outputs.requires_grad:
            return torch.zeros_like(problem.parameters)
        weights = list(leaves.values())
        parts = torch.autograd.grad(outputs, weights, cotangent, retain_graph=True, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

    return outputs.detach(), vjp
