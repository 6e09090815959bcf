"""The same problem in float32, for iterations that make sure of their result in float64."""

from __future__ import annotations

import torch

from hessmap.curvature.large import LargeProblem
from hessmap.curvature.problem import Problem
from hessmap.curvature.stream import Stream
from hessmap.curvature.structured import brought
from hessmap.errors import HessmapError

# What a model, a forward pass or a loss that holds float64 tensors raises when it meets float32.
_REFUSALS = (HessmapError, RuntimeError, TypeError, ValueError)
_SHARED = ("model", "loss", "l2", "norm", "memory_budget", "named", "_fixed", "layout", "output_dim", "notes")


def single_precision_twin(problem: Problem | LargeProblem) -> LargeProblem | None:
    """A float64 problem with a copy of its model in float32, on the same data.

    None if it is in float32 already, or if its model or loss does not give finite numbers in float32.
    """
    if problem.parameters.dtype != torch.float64:
        return None
    try:
        whole = _as_large(problem) if isinstance(problem, Problem) else problem
        twin = whole.in_single_precision()
        return twin if _is_finite(twin) else None
    except _REFUSALS:
        return None


def _as_large(problem: Problem) -> LargeProblem:
    """The problem with its data as a stream; nothing is copied or checked once more."""
    made = LargeProblem.__new__(LargeProblem)
    made.__dict__ |= {name: getattr(problem, name) for name in _SHARED}
    made.dtype, made.device = torch.float64, problem.parameters.device
    made._way, made._said = None, set()
    made.stream = Stream(problem.inputs, problem.targets)
    made._weights, made.mass = problem.weights, 1.0
    return made


@torch.no_grad()
def _is_finite(problem: LargeProblem) -> bool:
    assert problem.stream.first is not None
    inputs, targets = problem.stream.first
    outputs = problem.forward(problem.named, brought(inputs, problem.device, problem.dtype))
    values = problem.loss.value(outputs, problem._prepared(targets))
    return bool(torch.isfinite(outputs).all() and torch.isfinite(values).all())
