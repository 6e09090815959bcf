"""Derivatives by autograd held against differences, on two samples, once per problem.

An operation with a derivative of its own can hide what it depends on (a ``backward`` that detaches), and a model can
hide values from autograd (``detach``, hooks that change gradients). The products of such a model may be symmetric and
still belong to no function. Differences tell. They are believed only where four of them agree, on both sides and with
two steps, so that kinks, ties and rounding decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

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
HIDDEN_LOSS_NOTE = (
    "slopes of the loss are not those of its values: it hides outputs from autograd (detach, no_grad, item); "
    "its derivatives are those that torch takes"
)
_MOST_OUTPUTS = 4096


@dataclass(frozen=True)
class _Trust:
    """What differences in a number format can tell.

    With a step relative to the size of the point, and with a part ``nearer`` of it, they are believed if no further
    apart than ``believed`` of the largest of them, and contradict a derivative that is further off than ``allowed`` of
    its size: or of the part ``resolved`` of value / point, below which they are rounding.
    """

    step: float
    nearer: float
    believed: float
    allowed: float
    resolved: float


_TRUST = {torch.float64: _Trust(1e-6, 1 / 32, 1e-3, 1e-2, 1e-5), torch.float32: _Trust(1e-3, 1 / 4, 2e-2, 1e-1, 1e-1)}


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
    if isinstance(problem.loss, FunctionLoss):
        _check_loss(problem, line.batch)
    return True


class _Line:
    """A random sum of outputs of two samples, along a random line of the parameters.

    Of the sum, and of its gradient in another random direction: the value, what autograd finds for its derivative along
    the line, and the sizes of both.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.batch = next(iter(problem.batches(2)))
        size = problem.num_parameters
        self.direction, self.other = random_vector(2 * size, problem.dtype).reshape(2, size).to(problem.device)
        for name, row in _padding_rows(problem):  # torch takes them for constants
            problem.unflatten(self.direction)[name][row] = 0.0
        self.point_size = _size(problem.parameters)
        self._known: dict[float, tuple[float, float]] = {}
        graph = BatchGraph(problem, self.batch, together=False, fast=False)
        sizes = [_norm(graph.outputs)]
        with torch.enable_grad():
            roots = graph.gradient(self._sum(graph))
        graph.forget_outputs()
        gradient = _joined(roots, graph)
        image = graph.flat_rows(graph.vjp(roots, graph.leaves, graph.split(self.direction[None])))[0]
        sizes += [_norm(gradient), _norm(image)]
        self.first = _dot(gradient, self.direction), sizes[1], sizes[0]
        self.second = _dot(image, self.other), sizes[2], sizes[1]

    def first_derivative_is_true(self) -> bool:
        """Asked more sharply than the second, so that what is hidden from both is not laid on the second."""
        return self._is_true(*self.first, lambda place: self._at(place)[0], allowed=_TRUST[self.problem.dtype].believed)

    def second_derivative_is_true(self) -> bool:
        return self._is_true(*self.second, lambda place: self._at(place)[1])

    def _is_true(
        self,
        found: float,
        scale: float,
        value_size: float,
        value: Callable[[float], float],
        allowed: float | None = None,
    ) -> bool:
        return not is_contradicted(found, scale, value, value_size, self.point_size, self.problem.dtype, allowed)

    def _at(self, place: float) -> tuple[float, float]:
        """The sum and its gradient in the other direction, at a place of the line."""
        if place not in self._known:
            moved = BatchGraph(self.problem, self.batch, False, fast=False, moved_by=place * self.direction)
            with torch.enable_grad():
                total = self._sum(moved)
            moved.forget_outputs()
            has_graph = total.requires_grad
            parts = (
                torch.autograd.grad(total, moved.leaves, allow_unused=True) if has_graph else [None] * len(moved.leaves)
            )
            self._known[place] = float(total.detach()), _dot(_joined(parts, moved), self.other)
        return self._known[place]

    def _sum(self, graph: BatchGraph) -> Tensor:
        """Of all outputs of a small model, of some of a large vocabulary."""
        flat = graph.outputs.reshape(-1)
        chosen = torch.linspace(0, len(flat) - 1, min(len(flat), _MOST_OUTPUTS)).long().to(flat.device)
        return (flat[chosen] * random_vector(len(chosen), flat.dtype).to(flat.device)).sum()


def _padding_rows(problem: Problem) -> Iterator[tuple[str, int]]:
    for path, module in problem.model.named_modules():
        name = f"{path}.weight" if path else "weight"
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and name in problem.named:
            yield from () if module.padding_idx is None else [(name, module.padding_idx)]


def _joined(parts: Sequence[Tensor | None], graph: BatchGraph) -> Tensor:
    """Derivatives in the leaves as one vector."""
    full = [
        torch.zeros_like(leaf) if part is None else part.detach()
        for part, leaf in zip(parts, graph.leaves, strict=True)
    ]
    return torch.cat([part.reshape(-1) for part in full])


def _check_loss(problem: Problem, batch: tuple[Any, Tensor, Tensor]) -> None:
    """The Hessian of a user's loss in the outputs is the derivative of its slopes; a note where these hide a part."""
    inputs, targets, _ = batch
    with torch.no_grad():
        outputs = problem.forward(problem.named, inputs).detach()
    shape = (2, *outputs.shape)
    direction, other = random_vector(2 * outputs.numel(), outputs.dtype).to(outputs.device).reshape(shape)

    def at(place: float) -> tuple[Tensor, float, Tensor]:
        """The outputs there, the value of the loss and its slopes."""
        point = (outputs + place * direction).requires_grad_()
        with torch.enable_grad():
            total = problem.loss.value(point, targets).sum()
        if not total.requires_grad:
            return point, float(total), torch.zeros_like(point)
        slope = torch.autograd.grad(total, point, create_graph=True, materialize_grads=True)[0]
        return point, float(total.detach()), slope

    point, total, slope = at(0.0)
    image = torch.zeros_like(slope)
    if slope.requires_grad:
        image = torch.autograd.grad(slope, point, direction, materialize_grads=True)[0]
    sizes, trust = (_size(outputs), problem.dtype), _TRUST[problem.dtype]
    along, second = _dot(slope.detach(), direction), _dot(image, other)
    if is_contradicted(along, _norm(slope), lambda place: at(place)[1], abs(total), *sizes, allowed=trust.believed):
        problem.add_note(HIDDEN_LOSS_NOTE)
    if is_contradicted(second, _norm(image), lambda place: _dot(at(place)[2], other), _norm(slope), *sizes):
        raise _untrue("the loss", "its slopes")


def is_contradicted(
    found: float,
    scale: float,
    value: Callable[[float], float],
    value_size: float,
    point_size: float,
    dtype: torch.dtype,
    allowed: float | None = None,
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
    least = trust.resolved * value_size / point_size
    if not abs(central - found) > (allowed or trust.allowed) * max(scale, abs(central), least):
        return False
    middle, nearer = value(0.0), trust.nearer * step
    differences = [(value(place) - middle) / place for place in (step, -step, nearer, -nearer)]
    # Not of the derivative: far from a stiff point they are all small beside it.
    return max(differences) - min(differences) <= trust.believed * max(least, *map(abs, differences))


def _untrue(whose: str, what: str) -> UnsupportedNetwork:
    got = f"torch's differ from differences of {what}"
    remedy = "Look for a backward that was written by hand and detaches what it depends on"
    return UnsupportedNetwork(sentence(f"second derivatives must be those of {whose}", got, remedy))


def _size(point: Tensor) -> float:
    return _norm(point) / max(1, point.numel()) ** 0.5 or 1.0


def _dot(one: Tensor, other: Tensor) -> float:
    return float((one.detach() * other).sum(dtype=torch.float64))


def _norm(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values.detach(), dtype=torch.float64))
