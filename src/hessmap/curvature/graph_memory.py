"""How many bytes a sample takes while a model is differentiated twice, counted where autograd keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from hessmap.curvature.batch_graph import may_be_rewritten
from hessmap.curvature.nested_tensors import Inputs, take_rows, tensors_with_paths

if TYPE_CHECKING:
    from hessmap.curvature.problem import Problem

_MIN_BYTES = 256
_LARGE_GRAPH, _TIMES_PARAMETERS = 2**26, 8
_ROUGHLY = 100  # copies of what enters and leaves a model, where autograd's cannot be counted


def bytes_per_sample(problem: Problem) -> int:
    """What autograd keeps of one more sample for the gradient and for its derivative; counted once per problem."""

    @torch.inference_mode(False)
    def count() -> int:
        inputs, targets, weights = next(iter(problem.batches(2)))
        try:
            both = _saved_bytes(problem, inputs, targets, weights)
        except RuntimeError as error:
            if "saved tensor hooks" not in str(error):
                raise
            # A model that calls torch.func.grad itself does not let the tensors be counted.
            entering = sum(tensor[0].numel() for _, tensor in tensors_with_paths(inputs))
            return max(_MIN_BYTES, _ROUGHLY * problem.dtype.itemsize * (entering + problem.output_dim))
        one = _saved_bytes(problem, take_rows(inputs, slice(1)), targets[:1], weights[:1]) if len(targets) > 1 else 0
        return max(_MIN_BYTES, both - one)

    return problem.find_once("bytes_per_sample", count)


def batch_bytes(problem: Problem) -> int:
    """What the graph of a batch should take: more is slow to be had from the system, and far less than the parameters
    themselves take would spend its time on them, once a batch."""
    return max(_LARGE_GRAPH, _TIMES_PARAMETERS * problem.num_parameters * problem.dtype.itemsize)


def samples_at_once(problem: Problem, columns: int) -> int:
    """Samples whose linearised pass, with half as much again for every column, fits into half of the budget."""
    each = bytes_per_sample(problem) * (1 + columns / 2)
    return max(1, min(problem.num_samples, int(problem.memory_budget / 2 / each)))


def samples_in_use(problem: Problem) -> int:
    """Samples of a batch of a product with one vector."""
    return min(samples_at_once(problem, 1), max(1, batch_bytes(problem) // bytes_per_sample(problem)))


def _saved_bytes(problem: Problem, inputs: Inputs, targets: Tensor, weights: Tensor) -> int:
    leaves = {name: value.clone().requires_grad_() for name, value in problem.named.items()}
    sizes: dict[int, int] = {}
    own = {value.untyped_storage().data_ptr() for value in leaves.values()}

    def note_size(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    fast = problem.dtype == torch.float32 and may_be_rewritten(problem)  # whose patches are kept
    with torch.enable_grad(), saved_tensors_hooks(note_size, lambda tensor: tensor):
        risk = problem.loss.risk(problem.forward(leaves, inputs, fast=fast), targets, weights)
        if risk.requires_grad:
            # Held until the tensors are counted: storages that were freed would be used again.
            gradient = torch.autograd.grad(risk, list(leaves.values()), create_graph=True, allow_unused=True)
            del gradient
    return sum(sizes.values())
