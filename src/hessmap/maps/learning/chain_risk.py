"""The risk of a problem and its gradient at many points at once: one for each chain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, func

from hessmap.problem import Inputs, Problem, bytes_per_sample, take_rows

_AGREEMENT = {torch.float64: 1e-9, torch.float32: 1e-3}


class ChainRisk:
    """Values and gradients of the risk at the rows of a matrix, on all samples or on some of them.

    All rows go through the model together where ``torch.func.vmap`` takes it and agrees with a row by itself; else one
    after the other.
    """

    @torch.inference_mode(False)
    def __init__(self, problem: Problem, num_chains: int) -> None:
        self.problem = problem
        self.start = problem.parameters.detach().clone()
        self._samples = problem.inputs, problem.targets, problem.weights
        each = bytes_per_sample(problem) * num_chains
        self._at_once = max(1, int(problem.working_bytes / each))
        self.is_parallel = num_chains > 1 and self._can_be_parallel()

    @torch.inference_mode(False)
    def __call__(self, points: Tensor, chosen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Values (rows) and gradients (rows, parameters); a batch of ``chosen`` samples stands for all of them."""
        values = self.problem.l2 * points.square().sum(1)
        gradients = 2 * self.problem.l2 * points
        for inputs, targets, weights in self._parts(chosen):
            if self.is_parallel:
                risks, slopes = func.vmap(lambda flat: self._at(flat, inputs, targets, weights))(points)  # noqa: B023
            else:
                rows = [self._at(flat, inputs, targets, weights) for flat in points]
                risks, slopes = (torch.stack(items) for items in zip(*rows, strict=True))
            values, gradients = values + risks, gradients + slopes
        return values.detach(), gradients.detach()

    def _at(self, flat: Tensor, inputs: Inputs, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        linearised: Any = func.vjp(self.problem.function(inputs), flat)
        outputs, vjp = linearised
        slopes = weights[:, None] * self.problem.loss.gradient(outputs, targets)
        return (weights * self.problem.loss.value(outputs, targets)).sum(), vjp(slopes.to(outputs.dtype))[0]

    def _parts(self, chosen: Tensor | None) -> Iterator[tuple[Inputs, Tensor, Tensor]]:
        inputs, targets, weights = self._samples
        if chosen is not None:
            weights = weights[chosen] * (len(targets) / len(chosen))
            inputs, targets = take_rows(inputs, chosen), targets[chosen]
        if len(targets) <= self._at_once:
            yield inputs, targets, weights
            return
        for first in range(0, len(targets), self._at_once):
            part = slice(first, first + self._at_once)
            yield take_rows(inputs, part), targets[part], weights[part]

    def _can_be_parallel(self) -> bool:
        inputs, targets, weights = self._samples
        few = slice(min(len(targets), 4))
        batch = take_rows(inputs, few), targets[few], weights[few]
        points = torch.stack([self.start, self.start * 1.01])
        try:
            values, gradients = func.vmap(lambda flat: self._at(flat, *batch))(points)
        except Exception:  # a model that torch.func cannot map over: whatever it says, rows by themselves are right
            return False
        alone, slope = self._at(points[1], *batch)
        tolerance = _AGREEMENT.get(self.problem.dtype, 1e-2)
        error = (gradients[1] - slope).abs().max() + (values[1] - alone).abs()
        return bool(error <= tolerance * (slope.abs().max() + alone.abs()))


def largest_curvatures(risk: ChainRisk, points: Tensor, generator: torch.Generator, num_products: int = 12) -> Tensor:
    """The largest curvature at each of the points, in absolute value: power iteration by differences of gradients."""
    vectors = torch.randn(points.shape, generator=generator, dtype=torch.float64).to(points)
    scale = 1e-5 if points.dtype == torch.float64 else 1e-2
    _, here = risk(points)
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=1)
    for _ in range(num_products):
        vectors = vectors / norms.clamp(min=torch.finfo(points.dtype).tiny)[:, None]
        step = scale * (1 + points.norm(dim=1, keepdim=True))
        _, there = risk(points + step * vectors)
        vectors = (there - here) / step
        norms = torch.linalg.vector_norm(vectors, dim=1)
    return norms
