"""Products with the three Hessians by automatic differentiation alone: no structure used, any module.

The forward pass is linearised once per batch and reused for every column.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, vmap

from hessmap.curvature.problem import Batch, Problem
from hessmap.curvature.pullback import pullback
from hessmap.results import Part

Product = Callable[[Tensor], Tensor]


def hessian_product(problem: Problem, part: Part, vectors: Tensor) -> Tensor:
    """The product of one of the three Hessians with the columns of ``vectors``, shape (num_parameters, count)."""
    total = 2 * problem.l2 * vectors if part == "loss" else torch.zeros_like(vectors)
    for batch in problem.batches(_batch_size(problem)):
        product = _PRODUCTS[part](problem, batch)
        for start in range(0, vectors.shape[1], _BLOCK):
            columns = slice(start, start + _BLOCK)
            total[:, columns] += vmap(product, in_dims=1, out_dims=1)(vectors[:, columns])
    return total


def uncancelled_size(problem: Problem, part: Part, vector: Tensor) -> float:
    """The largest entry of the product with every other sample alone, of those that one batch holds.

    Where samples cancel each other (the functional Hessian of a linear network at a least-squares solution is zero),
    their sum is rounding, and this is what it is small against.
    """
    batch = next(iter(problem.batches(_batch_size(problem))))
    inputs, targets, weights = (values[::2] for values in batch)
    product = _PRODUCTS[part](problem, (inputs, targets, weights))
    return float(vmap(product, in_dims=1, out_dims=1)(vector).abs().max())


_BLOCK = 64


def _batch_size(problem: Problem) -> int:
    """Samples whose activations, times a block of vectors, stay inside the budget (a rough count of 4 copies)."""
    rows = sum(shape[0] for _, shape in problem.layout.shapes if shape)
    width = problem.output_dim + problem.inputs[0].numel() + rows
    return max(1, min(problem.num_samples, problem.memory_budget // (32 * _BLOCK * width)))


def _loss_product(problem: Problem, batch: Batch) -> Product:
    inputs, targets, weights = batch

    def risk(flat: Tensor) -> Tensor:
        return weights @ problem.loss.value(problem.function(inputs)(flat), targets)

    # The Hessian is symmetric: pulling back through the gradient is the product.
    return pullback(grad(risk), problem.parameters)[1]


def _outer_product(problem: Problem, batch: Batch) -> Product:
    inputs, targets, weights = batch
    outputs, pull = pullback(problem.function(inputs), problem.parameters)
    hessian = weights[:, None, None] * problem.loss.hessian(outputs, targets)
    # J v is the pull-back of the pull-back: reverse mode only, which every module has.
    _, push = pullback(pull, torch.zeros_like(outputs))
    return lambda vector: pull((hessian @ push(vector)[:, :, None])[:, :, 0])


def _functional(problem: Problem, batch: Batch) -> Product:
    inputs, targets, weights = batch
    with torch.no_grad():
        outputs = problem.forward(problem.named, inputs)
        residual = weights[:, None] * problem.loss.gradient(outputs, targets)

    def linearised(flat: Tensor) -> Tensor:
        return (residual * problem.function(inputs)(flat)).sum()

    # The added zero keeps the gradient a function of the parameters where the outputs are linear in them.
    return pullback(lambda flat: grad(linearised)(flat) + 0.0 * flat, problem.parameters)[1]


_PRODUCTS: dict[Part, Callable[[Problem, Batch], Product]] = {
    "loss": _loss_product,
    "outer_product": _outer_product,
    "functional": _functional,
}
