"""Hessian products by central differences of gradients, for models that torch cannot differentiate twice.

    D(h) = (g(w + h v) - g(w - h v)) / (2 h) = H v + c h^2 + (rounding of g) / h

**Step.** h moves every parameter tensor by about eps^(1/3) of its own norm, which balances truncation and rounding
where the third derivative is of the scale of the weights; eps is that of the narrowest number format of the model.

**Error.** D(h) - D(2h) contains three times the truncation error of D(h), and rounding of about the size of that of
D(h). Where its norm is larger than eps^(2/3) of the product leads to expect, steps that are 8 times shorter and
longer are tried too, and the product with the smallest difference is returned. In float32 and float64 a second shorter
step is tried after one that did not help: few kinks leave a difference until none of them is within the step. The
choice depends on the vector alone, so that equal vectors have equal products.

**Kinks.** Steps in half precision are so long that they cross kinks (ReLU), which D(h) and D(2h) share: both measure a
smoothed curvature, and their difference does not show it. The differences of the two sides do: those of a smooth
gradient are apart in proportion to h, while different kinks on either side, and rounding, leave them as far apart at h
as at 2h. Then half of that is a part of the error.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from hessmap.linalg import widest_dtype
from hessmap.problem import Problem, samples_at_once

_EXPECTED = 4.0  # times eps^(2/3): an error above it is worth trying other steps
_RATIO = 8.0  # between the steps that are tried
_MOST_STEPS = 5  # pairs of differences for one product
_NARROW = 1e-4  # rounding unit above which steps may cross many kinks
_SMOOTH = 2**0.5  # growth of what sets the two sides apart from h to 2h: 2 for smooth gradients, at most 1 for kinks
_SMALL = 0.1  # of the root mean square of all weights: that of a tensor counts as no smaller


class DifferenceProduct(NamedTuple):
    """A product by differences, and its estimated error relative to its norm."""

    product: Tensor
    error: float


def difference_product(
    gradient: Callable[[Tensor], Tensor],
    vector: Tensor,
    step: float,
    eps: float,
    norm: Callable[[Tensor], float],
) -> DifferenceProduct:
    """Multiply the Hessian with one vector by central differences of gradients.

    Args:
        gradient: The gradient at an offset from the parameters.
        vector: The vector, not zero.
        step: Its multiple that moves the parameters by eps^(1/3) of their size.
        eps: Rounding unit of the narrowest number format in which gradients are computed.
        norm: The norm of a vector; over all processes where vectors are sharded.

    Returns:
        DifferenceProduct: D(h) of the best step, and ||D(h) - D(2h)|| / ||D(h)||, at least eps; of gradients in half
            precision also at least what kinks and rounding leave between the two sides.
    """
    centre = gradient(torch.zeros_like(vector)) if eps > _NARROW else None

    def tried(factor: float) -> tuple[DifferenceProduct, float]:
        (near, bent), (far, bent_far) = (
            _central_difference(gradient, vector, factor * step * times, centre) for times in (1.0, 2.0)
        )
        size, apart = norm(near), norm(near - far)
        if bent is not None and bent_far is not None:
            sides = norm(bent)
            if norm(bent_far) < _SMOOTH * sides:
                apart = max(apart, sides / 2)
        if not size:  # below the rounding of gradients: nothing is known of the product, unless both are zero
            return DifferenceProduct(near, 1.0 if apart else eps), inf
        return DifferenceProduct(near, max(eps, apart / size)), apart

    (best, least), num_tried, enough = tried(1.0), 1, _EXPECTED * eps ** (2 / 3)
    # A kink within a step adds to the product in proportion to 1 / h, and half of that to the difference: so the
    # differences are compared, not their ratios to the product, which are one half whatever the step.
    patience = {1 / _RATIO: 2 if eps <= _NARROW else 1, _RATIO: 1}
    for ratio, most_misses in patience.items():
        factor, num_misses, has_helped = ratio, 0, False
        while num_tried < _MOST_STEPS and best.error > enough and num_misses < most_misses:
            found, apart = tried(factor)
            num_tried, factor = num_tried + 1, factor * ratio
            if apart < least:
                best, least, has_helped, num_misses = found, apart, True, 0
            else:
                num_misses += 1
        if has_helped:  # shorter steps helped: longer ones do not
            break
    return best


def _central_difference(
    gradient: Callable[[Tensor], Tensor], vector: Tensor, step: float, centre: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The central difference, and the one of the two one-sided ones where the gradient at the centre is known."""
    ahead, behind = gradient(step * vector), gradient(-step * vector)
    bent = None if centre is None else (ahead - 2 * centre + behind) / step
    return (ahead - behind) / (2 * step), bent


def difference_step(vector_squares: Tensor, point_squares: Tensor, sizes: Tensor, eps: float) -> float:
    """The multiple of a vector that moves parameter tensors by eps^(1/3) of their size, in the root mean square.

    Args:
        vector_squares: Squared norm of the vector in every parameter tensor.
        point_squares: Squared norm of every parameter tensor.
        sizes: Number of entries of every parameter tensor.
        eps: Rounding unit of the gradients.

    Returns:
        float: The step, or 0.0 for a vector of zeros.
    """
    overall = float(point_squares.sum() / sizes.sum()) or 1.0
    scales = torch.maximum(point_squares, _SMALL**2 * overall * sizes)
    relative = float((vector_squares / scales).sum()) ** 0.5
    return eps ** (1 / 3) / relative if relative else 0.0


def expected_difference_error(dtype: torch.dtype) -> float:
    """Relative error up to which products by differences in a number format are as good as can be expected."""
    return float(_EXPECTED * torch.finfo(dtype).eps ** (2 / 3))


class FiniteDifferences:
    """Products of the loss Hessian of a problem with rows of vectors; the problem keeps the largest error so far."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.eps = torch.finfo(problem.narrowest_format or problem.dtype).eps

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.stack([self._product(row) for row in rows]) if len(rows) else rows.clone()

    def _product(self, vector: Tensor) -> Tensor:
        own, point = self._squares(vector), self._squares(self.problem.parameters)
        sizes = torch.tensor([place.stop - place.start for _, place in self.problem.layout], dtype=torch.float64)
        step = difference_step(own, point, sizes, self.eps)
        if not step:
            return torch.zeros_like(vector)
        found = difference_product(self._gradient, vector, step, self.eps, _norm)
        self.problem.note_difference_error(found.error)
        return found.product

    def _squares(self, vector: Tensor) -> Tensor:
        return torch.tensor([_norm(vector[place]) ** 2 for _, place in self.problem.layout], dtype=torch.float64)

    def _gradient(self, offset: Tensor) -> Tensor:
        """The gradient of the loss without the penalty, at an offset from the parameters."""
        problem = self.problem
        moved = {name: problem.named[name] + part for name, part in problem.unflatten(offset).items()}
        total = torch.zeros_like(offset)
        for inputs, targets, weights in problem.batches(samples_at_once(problem, 1)):
            leaves = {name: value.detach().requires_grad_() for name, value in moved.items()}
            with torch.enable_grad():
                risk = problem.loss.risk(problem.forward(leaves, inputs), targets, weights)
            if risk.requires_grad:
                parts = torch.autograd.grad(risk, list(leaves.values()), materialize_grads=True)
                total += torch.cat([part.reshape(-1) for part in parts])
        return total


def _norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector, dtype=widest_dtype(vector.device)))
