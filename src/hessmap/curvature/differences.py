"""Derivatives by autograd held against differences, on two samples, once per problem.

An operation with a derivative of its own can hide what it depends on (a ``backward`` that detaches), and a model can
hide values from autograd (``detach``, hooks that change gradients). The products of such a model may be symmetric and
still belong to no function. Differences tell. They are believed only where four of them agree, on both sides and with
two steps, so that kinks, ties and rounding decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hessmap.curvature.agreement import random_vector
from hessmap.curvature.batch_graph import BatchGraph
from hessmap.curvature.losses import FunctionLoss
from hessmap.curvature.second_derivatives import twice_differentiable
from hessmap.errors import UnsupportedNetwork, sentence

if TYPE_CHECKING:
    from hessmap.curvature.problem import Problem

HIDDEN_NOTE = (
    "gradients are not those of the outputs: the model hides values from autograd or changes gradients (detach, hooks, "
    "a backward of its own); its derivatives are those that torch takes"
)
_NEARER = 0.25  # of the step, for the second pair of differences


@dataclass(frozen=True)
class _Trust:
    """What differences in a number format can tell.

    With a step relative to the size of the point, they are believed if no further apart than ``believed``, and
    contradict a derivative that is further off than ``allowed``: relative to the derivative, or to the part
    ``resolved`` of value / point, below which they are rounding.
    """

    step: float
    believed: float
    allowed: float
    resolved: float


_TRUST = {torch.float64: _Trust(1e-6, 1e-3, 1e-2, 1e-5), torch.float32: _Trust(1e-3, 2e-2, 1e-1, 1e-1)}


@torch.inference_mode(False)
@twice_differentiable()
def require_true_derivatives(problem: Problem) -> None:
    """Second derivatives of outputs and loss are the derivatives of the first ones, or the model is refused; where
    already the first ones are not those of the outputs, a note says so."""
    problem.find_once("derivatives against differences", lambda: _require_true(problem))


def _require_true(problem: Problem) -> bool:
    if problem.narrowest_format is not None:  # differences would be of rounded values
        return False
    line = _Line(problem)
    is_true_once = line.first_derivative_is_true()
    if is_true_once and not line.second_derivative_is_true():
        raise _untrue("the outputs", "gradients")
    if not is_true_once:
        problem.add_note(HIDDEN_NOTE)
    if isinstance(problem.loss, FunctionLoss) and not _loss_is_true(problem, line.graph):
        raise _untrue("the loss", "its slopes")
    return True


class _Line:
    """The outputs of two samples, seen in a random direction of theirs, along a random line of the parameters."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.batch = next(iter(problem.batches(2)))
        self.graph = BatchGraph(problem, self.batch, together=False)
        size, outputs = problem.num_parameters, self.graph.outputs
        self.direction, self.other = random_vector(2 * size, problem.dtype).reshape(2, size).to(problem.device)
        self.cotangent = random_vector(outputs.numel(), outputs.dtype).to(outputs.device).reshape(outputs.shape)
        self.size = _size(problem.parameters)
        self.gradient = self._gradient(self.graph)
        self._known: dict[float, tuple[float, float]] = {}

    def first_derivative_is_true(self) -> bool:
        found, scale = _dot(self.gradient, self.direction), float(self.gradient.double().norm())
        value_size = float(self.graph.outputs.detach().double().norm())
        return self._is_true(found, scale, value_size, lambda place: self._at(place)[0])

    def second_derivative_is_true(self) -> bool:
        roots = self.graph.transposed_jacobian(self.cotangent)
        rows = self.graph.split(self.direction[None])
        image = self.graph.joined(self.graph.vjp(roots, self.graph.leaves, rows))[0]
        found, scale = _dot(image, self.other), float(image.double().norm())
        value_size = float(self.gradient.double().norm())
        return self._is_true(found, scale, value_size, lambda place: self._at(place)[1])

    def _is_true(self, found: float, scale: float, value_size: float, value: Callable[[float], float]) -> bool:
        return not is_contradicted(found, scale, value, value_size, self.size, self.problem.dtype)

    def _at(self, place: float) -> tuple[float, float]:
        """What the outputs are in the direction of theirs, and their gradient in the other one of the parameters."""
        if place not in self._known:
            moved = BatchGraph(self.problem, self.batch, together=False, moved_by=place * self.direction)
            self._known[place] = (_dot(moved.outputs, self.cotangent), _dot(self._gradient(moved), self.other))
        return self._known[place]

    def _gradient(self, graph: BatchGraph) -> Tensor:
        if not graph.outputs.requires_grad:
            return torch.zeros_like(self.direction)
        kept = {"retain_graph": graph is self.graph, "materialize_grads": True}
        parts = torch.autograd.grad(graph.outputs, graph.leaves, self.cotangent, **kept)
        return torch.cat([part.reshape(-1) for part in parts])


def _loss_is_true(problem: Problem, graph: BatchGraph) -> bool:
    """Whether the Hessian of a user's loss in the outputs is the derivative of its slopes."""
    outputs, targets = graph.outputs.detach(), graph.targets
    shape = (2, *outputs.shape)
    direction, other = random_vector(2 * outputs.numel(), outputs.dtype).to(outputs.device).reshape(shape)

    def slopes(place: float) -> tuple[Tensor, Tensor]:
        point = (outputs + place * direction).requires_grad_()
        with torch.enable_grad():
            total = problem.loss.value(point, targets).sum()
        if not total.requires_grad:
            return point, torch.zeros_like(point)
        return point, torch.autograd.grad(total, point, create_graph=True, materialize_grads=True)[0]

    point, slope = slopes(0.0)
    image = torch.zeros_like(slope)
    if slope.requires_grad:
        image = torch.autograd.grad(slope, point, direction, materialize_grads=True)[0]
    found, scale = _dot(image, other), float(image.double().norm())
    value_size = float(slope.detach().double().norm())
    return not is_contradicted(
        found, scale, lambda place: _dot(slopes(place)[1], other), value_size, _size(outputs), problem.dtype
    )


def is_contradicted(
    found: float,
    scale: float,
    value: Callable[[float], float],
    value_size: float,
    point_size: float,
    dtype: torch.dtype,
) -> bool:
    """Whether ``found`` is not the derivative of a value at 0, as far as differences tell.

    ``scale`` is the size of the derivative in any direction; rounding is relative to the sizes of value and point.

    >>> is_contradicted(3.0, 1.0, lambda place: (1 + place) ** 3, 1.0, 1.0, torch.float64)
    False
    >>> is_contradicted(2.0, 1.0, lambda place: (1 + place) ** 3, 1.0, 1.0, torch.float64)
    True
    >>> is_contradicted(0.0, 1.0, abs, 1.0, 1.0, torch.float64)    # at a kink nothing is told
    False
    """
    trust = _TRUST[dtype]
    step = trust.step * point_size
    central = (value(step) - value(-step)) / (2 * step)
    scale = max(scale, abs(central), trust.resolved * value_size / point_size)
    if not abs(central - found) > trust.allowed * scale:
        return False
    middle = value(0.0)
    differences = [(value(place) - middle) / place for place in (step, -step, _NEARER * step, -_NEARER * step)]
    return max(differences) - min(differences) <= trust.believed * scale


def _untrue(whose: str, what: str) -> UnsupportedNetwork:
    got = f"torch's differ from differences of {what}"
    remedy = "Look for a backward that was written by hand and detaches what it depends on"
    return UnsupportedNetwork(sentence(f"second derivatives must be those of {whose}", got, remedy))


def _size(point: Tensor) -> float:
    return float(point.detach().double().square().mean().sqrt()) or 1.0


def _dot(one: Tensor, other: Tensor) -> float:
    return float((one.detach().double() * other.double()).sum())
