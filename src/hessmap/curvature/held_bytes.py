"""How many bytes a sample holds while a model is differentiated twice, counted where autograd keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from hessmap.curvature.structured import Inputs, rows

if TYPE_CHECKING:
    from hessmap.curvature.products import AnyProblem

_MIN_BYTES = 256


def bytes_per_sample(problem: AnyProblem) -> int:
    """What autograd keeps of one more sample for the gradient and for its derivative; counted once per problem."""
    known: int | None = getattr(problem, "_bytes_per_sample", None)
    if known is None:
        inputs, targets, weights = next(iter(problem.batches(2)))
        both = _kept(problem, inputs, targets, weights)
        one = _kept(problem, rows(inputs, slice(1)), targets[:1], weights[:1]) if len(targets) > 1 else 0
        known = max(_MIN_BYTES, both - one)
        problem._bytes_per_sample = known  # type: ignore[union-attr]
    return known


def _kept(problem: AnyProblem, inputs: Inputs, targets: Tensor, weights: Tensor) -> int:
    leaves = {name: value.clone().requires_grad_() for name, value in problem.named.items()}
    sizes: dict[int, int] = {}
    own = {value.untyped_storage().data_ptr() for value in leaves.values()}

    def seen(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad(), saved_tensors_hooks(seen, lambda tensor: tensor):
        values = problem.loss.value(problem.forward(leaves, inputs), targets)
        risk = (weights * values).sum()
        if risk.requires_grad:
            kept = torch.autograd.grad(risk, list(leaves.values()), create_graph=True, allow_unused=True)
            del kept
    return sum(sizes.values())
