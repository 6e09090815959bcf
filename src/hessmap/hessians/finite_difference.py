"""Hessian products by central differences of gradients, for models that torch cannot differentiate twice.

    H v ~ (g(w + h v) - g(w - h v)) / (2 h)

has a truncation error of order h^2 and a rounding error of order eps |g| / h; h = eps^(1/3) |w| / |v| balances them up
to the scale of the third derivative. The product with twice the step shows both: their difference is three times the
truncation error of the smaller step, and at least of the size of its rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hessmap.problem import Problem, samples_at_once


class FiniteDifferences:
    """Products of the loss Hessian with rows of vectors; ``error`` is the largest estimated relative error so far."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.error = 0.0

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.stack([self._product(row) for row in rows])

    def _product(self, vector: Tensor) -> Tensor:
        problem, size = self.problem, float(vector.double().norm())
        if size == 0.0:
            return torch.zeros_like(vector)
        narrowest = problem.narrowest_format or problem.dtype
        point = float(problem.parameters.double().norm()) or problem.num_parameters**0.5
        step = torch.finfo(narrowest).eps ** (1 / 3) * point / size
        near, far = (self._difference(vector, step * factor) for factor in (1.0, 2.0))
        scale = float(near.double().norm())
        if scale:
            self.error = max(self.error, float((near - far).double().norm()) / scale)
            problem.note_difference_error(self.error)
        return near

    def _difference(self, vector: Tensor, step: float) -> Tensor:
        return (self._gradient(step * vector) - self._gradient(-step * vector)) / (2 * step)

    def _gradient(self, offset: Tensor) -> Tensor:
        """The gradient of the loss without the penalty, at an offset from the parameters."""
        problem = self.problem
        moved = {name: problem.named[name] + part for name, part in problem.unflatten(offset).items()}
        total = torch.zeros_like(offset)
        for inputs, targets, weights in problem.batches(samples_at_once(problem, 1)):
            leaves = {name: value.detach().requires_grad_() for name, value in moved.items()}
            with torch.enable_grad():
                risk = problem.loss.risk(problem.forward(leaves, inputs), targets, weights)
            if risk.requires_grad:
                parts = torch.autograd.grad(risk, list(leaves.values()), materialize_grads=True)
                total += torch.cat([part.reshape(-1) for part in parts])
        return total
