"""Minima of regularised ReLU networks by L-BFGS behind a preconditioner of Kronecker products.

The norm of a deep network with a weak penalty falls slowly because the risk is far more curved than the penalty. Per
layer the curvature of the risk is about A (x) G (Martens & Grosse 2015): A the second moment of what enters, G
that of derivatives of outputs in what leaves. (2 A (x) G + 2 ridge)^-1 in their eigenvectors takes the place of the
multiple of the identity from which L-BFGS starts. The line search asks for the weak conditions of Wolfe alone, which
can be met at kinks (Lewis & Overton 2013).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from hessmap_research.studies.function.relu_objective import (
    ReluObjective,
    balanced,
    derivatives_in_sums,
    least_gradient_norm,
)

if TYPE_CHECKING:
    from torch import nn

    from hessmap.datasets import Data

_MEMORY = 20  # pairs that L-BFGS remembers
_REFRESH = 200  # steps after which the preconditioner is recomputed
_CHECK = 1000  # steps after which the end is looked for
_NUM_PROBES = 8
_LEAST_SLOPE, _DESCENT, _TRIALS = 0.9, 1e-4, 40


class Minimum(NamedTuple):
    """Where the search ended: ``least_gradient_norm`` is that of the objective with free slopes at kinks.

    Where it is far below ``gradient_norm`` the rest of the gradient comes from samples at kinks, as near minima.
    """

    objective: float
    gradient_norm: float
    least_gradient_norm: float
    num_steps: int


def minimise(model: nn.Sequential, data: Data, ridge: float, *, num_steps: int, gradient_norm: float) -> Minimum:
    """Bring a trained model to a minimum: in float32, then ``_REFRESH`` steps in float64.

    It ends when the norm of the gradient is below ``gradient_norm``, looked for every ``_CHECK`` steps, or after
    ``num_steps``.
    """
    from hessmap_research.studies.function.regularised_network import small_numbers_as_zeros

    exact, quick = (ReluObjective(model, data, ridge, dtype) for dtype in (torch.float64, torch.float32))
    point, done, norm = exact.vector(model), 0, inf
    with small_numbers_as_zeros():
        while done < num_steps and norm >= gradient_norm:
            point = descend(quick, balanced(exact, point).float(), num_steps=_CHECK - _REFRESH, seed=done).double()
            point = balanced(exact, descend(exact, point, num_steps=_REFRESH, seed=done))
            done, norm = done + _CHECK, exact(point)[1].norm().item()
    exact.write_to(model, point)
    return Minimum(exact(point)[0], norm, least_gradient_norm(exact, point), done)


def descend(objective: ReluObjective, point: Tensor, *, num_steps: int, seed: int = 0) -> Tensor:
    """``num_steps`` steps of L-BFGS, with new preconditioner and memory every ``_REFRESH``; fewer if none descends."""
    value, gradient = objective(point)
    for step in range(num_steps):
        if step % _REFRESH == 0:
            memory = Memory(KroneckerPreconditioner(objective, point, seed + step))
        taken = _line_search(objective, point, value, gradient, -memory.direction(gradient))
        if taken is None:
            if not memory.pairs:
                break
            memory = Memory(memory.preconditioner)
            continue
        moved, value, changed = taken
        memory.add(moved - point, changed - gradient)
        point, gradient = moved, changed
    return point


def _line_search(
    objective: ReluObjective, point: Tensor, value: float, gradient: Tensor, direction: Tensor
) -> tuple[Tensor, float, Tensor] | None:
    """Bisection, and doubling before it, until the objective has fallen and its slope has risen enough."""
    slope = float(gradient @ direction)
    low, high, length = 0.0, inf, 1.0
    for _ in range(_TRIALS if slope < 0 else 0):
        moved = point + length * direction
        reached, changed = objective(moved)
        if not reached <= value + _DESCENT * length * slope:
            high = length
        elif float(changed @ direction) < _LEAST_SLOPE * slope:
            low = length
        else:
            return moved, reached, changed
        length = (low + high) / 2 if high < inf else 2 * low
    return None


class Memory:
    """The pairs of L-BFGS and the matrix in front of which they stand."""

    def __init__(self, preconditioner: KroneckerPreconditioner) -> None:
        self.preconditioner = preconditioner
        self.pairs: list[tuple[Tensor, Tensor, float]] = []
        self._scale = 1.0

    def add(self, step: Tensor, change: Tensor) -> None:
        product = float(step @ change)
        if product > 1e-14 * float(step.norm() * change.norm()):
            self.pairs = [*self.pairs[1 - _MEMORY :], (step, change, 1 / product)]
            self._scale = product / float(change @ self.preconditioner(change))

    def direction(self, gradient: Tensor) -> Tensor:
        """The inverse Hessian that the pairs tell, times the gradient."""
        found, shares = gradient.clone(), list[Tensor]()
        for step, change, inverse in reversed(self.pairs):
            shares.append(inverse * (step @ found))
            found -= shares[-1] * change
        found = self._scale * self.preconditioner(found)
        for (step, change, inverse), share in zip(self.pairs, reversed(shares), strict=True):
            found += step * (share - inverse * (change @ found))
        return found


class KroneckerPreconditioner:
    """(2 A (x) G + 2 ridge)^-1 of every layer at one point."""

    def __init__(self, objective: ReluObjective, point: Tensor, seed: int) -> None:
        self._objective = objective
        matrices = objective.matrices(point)
        entering, leaving = objective.sums(matrices)
        outputs = _output_factors(matrices, leaving, seed)
        self._factors = [
            _eigenvectors_and_inverses(seen.T @ seen / len(seen), output, objective.ridge)
            for seen, output in zip(entering, outputs, strict=True)
        ]

    def __call__(self, vector: Tensor) -> Tensor:
        parts = [
            (left @ ((left.T @ matrix @ right) * inverses) @ right.T).flatten()
            for matrix, (left, right, inverses) in zip(self._objective.matrices(vector), self._factors, strict=True)
        ]
        return torch.cat(parts)


def _output_factors(matrices: list[Tensor], leaving: list[Tensor], seed: int) -> list[Tensor]:
    """Means over samples of J^T J, J the derivatives of all outputs in what leaves a layer, from random signs."""
    generator = torch.Generator().manual_seed(seed)
    count, dtype = len(leaving[-1]), leaving[-1].dtype
    factors = [torch.zeros(len(matrix), len(matrix), dtype=dtype) for matrix in matrices]
    weights, slopes = [matrix[:, :-1] for matrix in matrices], [part > 0 for part in leaving[:-1]]
    for _ in range(_NUM_PROBES):
        signs = torch.randint(0, 2, leaving[-1].shape, generator=generator).to(dtype) * 2 - 1
        for place, back in derivatives_in_sums(weights, slopes, signs):
            factors[place] += back.T @ back / (count * _NUM_PROBES)
    return factors


def _eigenvectors_and_inverses(entering: Tensor, leaving: Tensor, ridge: float) -> tuple[Tensor, Tensor, Tensor]:
    values, right = torch.linalg.eigh(entering)
    others, left = torch.linalg.eigh(leaving)
    return left, right, 1 / (2 * torch.outer(others.clamp(min=0), values.clamp(min=0)) + 2 * ridge)
