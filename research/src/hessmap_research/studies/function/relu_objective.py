"""mean ||f(x) - y||^2 + ridge ||parameters||^2 of a ReLU network, as a function of one vector.

Each layer is one matrix [W, b], applied to activations with a one appended.

A ReLU network whose weights and biases are two vectors, with the gradient of its risk written out.

Twice as quick as autograd for the small networks of these studies, in which the calls cost more than the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from hessmap.training import fitting_targets

if TYPE_CHECKING:
    from hessmap.datasets import Data


Loss = Literal["squared", "cross_entropy"]


class ReluObjective:
    """The objective and its gradient for networks of the layers of ``model``."""

    def __init__(self, model: nn.Sequential, data: Data, ridge: float, dtype: torch.dtype = torch.float64) -> None:
        self.ridge = ridge
        self.inputs, self.targets = data.inputs.to(dtype), data.targets.to(dtype)
        self._shapes = [(layer.out_features, layer.in_features + 1) for layer in _linear(model)]

    def vector(self, model: nn.Sequential) -> Tensor:
        parts = [torch.cat([layer.weight, layer.bias[:, None]], 1).flatten() for layer in _linear(model)]
        return torch.cat(parts).detach().to(self.inputs.dtype)

    @torch.no_grad()
    def write_to(self, model: nn.Sequential, vector: Tensor) -> None:
        for layer, matrix in zip(_linear(model), self.matrices(vector), strict=True):
            layer.weight.copy_(matrix[:, :-1])
            layer.bias.copy_(matrix[:, -1])

    def matrices(self, vector: Tensor) -> list[Tensor]:
        """[W, b] of every layer, as views."""
        parts = torch.split(vector, [prod(shape) for shape in self._shapes])
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def sums(self, matrices: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """What enters every layer, with a one appended, and what leaves it before ReLU."""
        entering, leaving = list[Tensor](), list[Tensor]()
        for matrix in matrices:
            entering.append(_with_ones(leaving[-1].relu() if leaving else self.inputs))
            leaving.append(entering[-1] @ matrix.T)
        return entering, leaving

    def of_outputs(self, outputs: Tensor) -> Tensor:
        """The gradient of the risk in the outputs."""
        return (outputs - self.targets) * (2 / len(outputs))

    def __call__(self, vector: Tensor) -> tuple[float, Tensor]:
        matrices = self.matrices(vector)
        entering, leaving = self.sums(matrices)
        residuals = leaving[-1] - self.targets
        value = residuals.square().sum(dtype=torch.float64) / len(residuals)
        value += self.ridge * vector.square().sum(dtype=torch.float64)
        slopes = [part > 0 for part in leaving[:-1]]
        return value.item(), self.gradient(matrices, entering, self.of_outputs(leaving[-1]), slopes)

    def gradient(
        self, matrices: Sequence[Tensor], entering: Sequence[Tensor], back: Tensor, slopes: Sequence[Tensor]
    ) -> Tensor:
        """The gradient by the chain rule, ReLU having these ``slopes``."""
        found = [
            (back.T @ entering[place] + 2 * self.ridge * matrices[place]).flatten()
            for place, back in derivatives_in_sums([matrix[:, :-1] for matrix in matrices], slopes, back)
        ]
        return torch.cat(found[::-1])


def derivatives_in_sums(
    weights: Sequence[Tensor], slopes: Sequence[Tensor], back: Tensor
) -> Iterator[tuple[int, Tensor]]:
    """The chain rule: from derivatives in the outputs to those in what leaves each layer before ReLU, the last first.

    ``slopes`` are those of ReLU behind every layer but the last.
    """
    for place in range(len(weights) - 1, -1, -1):
        yield place, back
        if place:
            back = (back @ weights[place]) * slopes[place - 1]


def least_gradient_norm(objective: ReluObjective, vector: Tensor, share: float = 1e-4, num_steps: int = 300) -> float:
    """The least norm of the gradient if ReLU may have any slope from 0 to 1 at its kink.

    Minima of ReLU networks lie where sums of some samples are zero: there the objective has no gradient, and on every
    side of them one that does not vanish. What vanishes at a minimum is the nearest point of the generalised gradient
    of Clarke. It is among the gradients with free slopes, here of sums that are at most ``share`` of the largest of
    their unit. The answer is the best that ``num_steps`` of L-BFGS-B find, so never too small for these slopes.
    """
    from scipy.optimize import minimize

    matrices = objective.matrices(vector)
    entering, leaving = objective.sums(matrices)
    back, hidden = objective.of_outputs(leaving[-1]), leaving[:-1]
    slopes = [(part > 0).to(part.dtype) for part in hidden]
    places = [(part.abs() <= share * part.abs().amax(0)).nonzero(as_tuple=True) for part in hidden]
    counts = [len(rows) for rows, _ in places]

    def squared_norm(values: Any) -> tuple[float, Any]:
        free = torch.as_tensor(values, dtype=back.dtype).requires_grad_()
        parts = torch.split(free, counts)
        chosen = [slope.index_put(place, part) for slope, place, part in zip(slopes, places, parts, strict=True)]
        value = objective.gradient(matrices, entering, back, chosen).square().sum()
        (derivative,) = torch.autograd.grad(value, free)
        return value.item(), derivative.double().numpy()

    start = torch.cat([slope[place] for slope, place in zip(slopes, places, strict=True)])
    if not len(start):
        return float(objective.gradient(matrices, entering, back, slopes).norm())
    options = {"maxiter": num_steps, "maxcor": 20}
    bounds = [(0.0, 1.0)] * len(start)
    found = minimize(squared_norm, start.double().numpy(), jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    return float(found.fun**0.5)


def balanced(objective: ReluObjective, vector: Tensor, num_rounds: int = 50) -> Tensor:
    """The same function with every unit rescaled until what enters it weighs as much as what leaves it.

    At minima it does (Jacot 2023, Remark 6), and descent takes long to get there. Units without effect become zero.
    """
    matrices = [part.clone() for part in objective.matrices(vector)]
    for _ in range(num_rounds):
        for first, second in pairwise(matrices):
            before, behind = first.norm(dim=1), second[:, :-1].norm(dim=0)
            alive = before * behind > 0
            factor = torch.where(alive, (behind / before.where(alive, torch.ones_like(before))).sqrt(), 0.0)
            first *= factor[:, None]
            second[:, :-1] *= torch.where(alive, 1 / factor.where(alive, torch.ones_like(factor)), 0.0)
    return torch.cat([part.flatten() for part in matrices])


def _with_ones(activations: Tensor) -> Tensor:
    return torch.nn.functional.pad(activations, (0, 1), value=1.0)


def _linear(model: nn.Sequential) -> list[nn.Linear]:
    return [leaf for leaf in model if isinstance(leaf, nn.Linear)]


class ReluDescent:
    """The parameters ``weights`` and ``biases`` (vectors with ``.grad``), and the data: float32 all of them."""

    def __init__(self, model: nn.Sequential, inputs: Tensor, targets: Tensor, loss: Loss) -> None:
        layers = [leaf for leaf in model if isinstance(leaf, nn.Linear)]
        self.weights = torch.cat([layer.weight.detach().flatten() for layer in layers]).float()
        self.biases = torch.cat([layer.bias.detach() for layer in layers]).float()
        self.weights.grad, self.biases.grad = torch.zeros_like(self.weights), torch.zeros_like(self.biases)
        self._widths = [layers[0].in_features, *(layer.out_features for layer in layers)]
        self._weights, self._weight_gradients = (self._matrices(flat) for flat in (self.weights, self.weights.grad))
        self._biases, self._bias_gradients = (
            torch.split(flat, self._widths[1:]) for flat in (self.biases, self.biases.grad)
        )
        self._inputs, self._loss = inputs.float(), loss
        self._targets = fitting_targets(loss, targets, torch.zeros(1, self._widths[-1]))

    def set_gradients(self) -> None:
        """Fill ``.grad`` of both vectors with the gradient of the risk."""
        seen = [self._inputs]
        last = len(self._weights) - 1
        for place, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
            sums = torch.addmm(bias, seen[-1], weight.T)
            seen.append(sums.relu_() if place < last else sums)
        outputs = seen.pop()
        slopes = [activations > 0 for activations in seen[1:]]
        for place, back in derivatives_in_sums(self._weights, slopes, self._of_outputs(outputs)):
            torch.mm(back.T, seen[place], out=self._weight_gradients[place])
            torch.sum(back, 0, out=self._bias_gradients[place])

    def _of_outputs(self, outputs: Tensor) -> Tensor:
        """The gradient of the risk in the outputs: 2 (f - y) / N, or (softmax - one-hot) / N."""
        count = len(outputs)
        if self._loss == "squared":
            return (outputs - self._targets).mul_(2 / count)
        chances = outputs.softmax(dim=1)
        chances[torch.arange(count), self._targets] -= 1
        return chances.div_(count)

    def _matrices(self, flat: Tensor) -> list[Tensor]:
        shapes = [(after, before) for before, after in pairwise(self._widths)]
        parts = torch.split(flat, [after * before for after, before in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    @torch.no_grad()
    def write_to(self, model: nn.Sequential) -> None:
        """Copy the parameters into a model of the same layers."""
        layers = [leaf for leaf in model if isinstance(leaf, nn.Linear)]
        for layer, weight, bias in zip(layers, self._weights, self._biases, strict=True):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
