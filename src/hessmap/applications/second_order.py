"""The second-order model of the loss around the parameters of a problem: risk + g.d + d^T H d / 2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hessmap.hessians import Hessian, loss_hessian, outer_product_hessian
from hessmap.problem import Problem

HessianPart = Literal["loss", "outer_product"]


def hessian_of(problem: Problem, part: HessianPart) -> Hessian:
    """The Hessian of the loss or its Gauss-Newton part, which an objective does not have."""
    return loss_hessian(problem) if part == "loss" else outer_product_hessian(problem)


class Terms(NamedTuple):
    """The terms of the model for one step d: g.d and d^T H d / 2."""

    gradient: float
    curvature: float


class SecondOrderModel:
    """The quadratic model of a problem's loss, with the whole Hessian or its Gauss-Newton part."""

    def __init__(self, problem: Problem, part: HessianPart) -> None:
        self.problem = problem
        self.hessian = hessian_of(problem, part)
        self.risk = problem.risk()
        self.num_products = 0

    @cached_property
    def gradient(self) -> Tensor:
        return self.problem.gradient()

    def products(self, steps: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each step d with H d; steps are made as they are needed, a block of them at once."""
        waiting = iter(steps)
        while some := list(islice(waiting, max(1, self.hessian.block_size))):
            found = self.hessian.matmat(torch.stack(some, 1))
            self.num_products += len(some)
            yield from zip(some, found.T, strict=True)

    def terms(self, steps: Iterable[Tensor]) -> Iterator[Terms]:
        """Yield the terms of each step, by one product per step."""
        for step, product in self.products(steps):
            yield Terms(float(self.gradient @ step), float(step @ product) / 2)

    def measured(self, step: Tensor) -> float:
        """The increase of the loss by a step, by one forward pass over the data."""
        return self.problem.risk(self.problem.parameters + step) - self.risk
