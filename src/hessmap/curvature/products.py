"""Products with the three Hessians by automatic differentiation alone: no structure used, any module.

The forward pass is linearised once per batch and reused for every column; where one batch holds all the data, it is
linearised once and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from hessmap.curvature.held_bytes import bytes_per_sample
from hessmap.curvature.large import LargeProblem
from hessmap.curvature.problem import Problem
from hessmap.curvature.pullback import pullback
from hessmap.curvature.structured import rows

AnyProblem = Problem | LargeProblem
Product = Callable[[Tensor], Tensor]
Batch = tuple[Any, Tensor, Tensor]
_BLOCK = 64
_COPIES = 6  # of a block of vectors that a product holds at once
_SMALL_OUTPUT = 64  # outputs up to which the Hessian of the loss in them is written down


class BlockProducts:
    """Products of one kind of curvature with blocks of vectors: ``kind`` makes the product of one batch."""

    def __init__(self, problem: AnyProblem, kind: str) -> None:
        self.problem = problem
        self.kind = kind
        self._kept: Product | None = None

    def __call__(self, vectors: Tensor) -> Tensor:
        """With the columns of ``vectors``, in the problem's number format and on its device, and brought back."""
        problem = self.problem
        point = problem.parameters
        given = vectors.to(point.device, point.dtype)
        total = 2 * problem.l2 * given if self.kind == "loss" else torch.zeros_like(given)
        width = min(max(1, given.shape[1]), columns_at_once(problem))
        if self._kept is not None:
            _add(total, self._kept, given, width)
            return total.to(vectors.device, vectors.dtype)
        size, seen, product = samples_at_once(problem, width), 0, None
        for batch in problem.batches(size):
            seen += len(batch[1])
            product = _PRODUCTS[self.kind](problem, batch)
            _add(total, product, given, width)
        if product is not None and seen == len(batch[1]) and samples_at_once(problem, columns_at_once(problem)) >= seen:
            self._kept = product
        return total.to(vectors.device, vectors.dtype)


def hessian_product(problem: AnyProblem, part: str, vectors: Tensor) -> Tensor:
    """The product of one of the three Hessians with the columns of ``vectors``, shape (num_parameters, count)."""
    return BlockProducts(problem, part)(vectors)


def uncancelled_size(problem: Problem, part: str, vector: Tensor) -> float:
    """The largest entry of the product with every other sample alone, of those that one batch holds.

    Where samples cancel each other (the functional Hessian of a linear network at a least-squares solution is zero),
    their sum is rounding, and this is what it is small against.
    """
    inputs, targets, weights = next(iter(problem.batches(samples_at_once(problem, 1))))
    every_other = rows(inputs, slice(None, None, 2)), targets[::2], weights[::2]
    product = _PRODUCTS[part](problem, every_other)
    return float(vmap(product, in_dims=1, out_dims=1)(vector).abs().max())


def columns_at_once(problem: AnyProblem) -> int:
    """Vectors of a block that, with their copies, take at most half of the budget."""
    each = _COPIES * problem.num_parameters * problem.parameters.element_size()
    return max(1, min(_BLOCK, problem.memory_budget // (2 * each)))


def samples_at_once(problem: AnyProblem, columns: int) -> int:
    """Samples whose linearised pass, with half as much again for every column, fits into half of the budget."""
    each = bytes_per_sample(problem) * (1 + columns / 2)
    return max(1, min(problem.num_samples, int(problem.memory_budget / 2 / each)))


def _add(total: Tensor, product: Product, vectors: Tensor, width: int) -> None:
    for start in range(0, vectors.shape[1], width):
        columns = slice(start, start + width)
        total[:, columns] += vmap(product, in_dims=1, out_dims=1)(vectors[:, columns])


def _loss_product(problem: AnyProblem, batch: Batch) -> Product:
    inputs, targets, weights = batch

    def risk(flat: Tensor) -> Tensor:
        return (weights * problem.loss.value(problem.function(inputs)(flat), targets)).sum()

    # The Hessian is symmetric: pulling back through the gradient is the product. The added zero keeps the gradient a
    # function of the parameters where the risk is linear in them.
    return pullback(lambda flat: grad(risk)(flat) + 0.0 * flat, problem.parameters)[1]


def _outer_product(problem: AnyProblem, batch: Batch) -> Product:
    inputs, targets, weights = batch

    def curved(outputs: Tensor) -> Product:
        if outputs.shape[1] <= _SMALL_OUTPUT:
            hessian = (weights[:, None, None] * problem.loss.hessian(outputs, targets)).to(outputs.dtype)
            return lambda pushed: (hessian @ pushed[:, :, None])[:, :, 0]
        slope = pullback(lambda values: problem.loss.gradient(values, targets).to(values.dtype), outputs)[1]
        return lambda pushed: slope(weights[:, None] * pushed)

    return through_outputs(problem, inputs, curved)


def _empirical(problem: AnyProblem, batch: Batch) -> Product:
    inputs, targets, weights = batch

    def curved(outputs: Tensor) -> Product:
        slope = problem.loss.gradient(outputs, targets).to(outputs.dtype)
        return lambda pushed: slope * (weights * (slope * pushed).sum(1))[:, None]

    return through_outputs(problem, inputs, curved)


def through_outputs(problem: AnyProblem, inputs: Any, curved: Callable[[Tensor], Product]) -> Product:
    """v -> J^T curved(J v), where ``curved`` is made at the outputs."""
    outputs, pull = pullback(problem.function(inputs), problem.parameters)
    middle = curved(outputs.detach())
    # J v is the pull-back of the pull-back: reverse mode only, which every module has.
    _, push = pullback(pull, torch.zeros_like(outputs))
    return lambda vector: pull(middle(push(vector)))


def _functional(problem: AnyProblem, batch: Batch) -> Product:
    inputs, targets, weights = batch
    with torch.no_grad():
        outputs = problem.forward(problem.named, inputs)
        residual = (weights[:, None] * problem.loss.gradient(outputs, targets)).to(outputs.dtype)

    def linearised(flat: Tensor) -> Tensor:
        return (residual * problem.function(inputs)(flat)).sum()

    # The added zero as above: outputs may be linear in the parameters.
    return pullback(lambda flat: grad(linearised)(flat) + 0.0 * flat, problem.parameters)[1]


_PRODUCTS: dict[str, Callable[[AnyProblem, Batch], Product]] = {
    "loss": _loss_product,
    "outer_product": _outer_product,
    "functional": _functional,
    "empirical_fisher": _empirical,
}
