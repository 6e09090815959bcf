"""The curvature that an application works with: a kind by name, a Kronecker-factored curvature, or any operator.

The second-order model of the loss around the parameters of a problem is risk + g.d + d^T H d / 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor

from hessmap.errors import InvalidInput, checked_number, require, require_name, sentence
from hessmap.hessians import Hessian, loss_hessian, outer_product_hessian
from hessmap.layers import CurvatureKind, KroneckerCurvature, kronecker_curvature
from hessmap.linalg import SymmetricOperator
from hessmap.measurement import krylov_solve
from hessmap.problem import Problem

Curvature = KroneckerCurvature | SymmetricOperator
_DAMPING = 0.1  # of the mean eigenvalue, where none is given
_TOLERANCE = 1e-10
HessianPart = Literal["loss", "outer_product"]


def chosen_curvature(problem: Problem, curvature: str | Curvature) -> Curvature:
    """A curvature of the problem's parameters, computed where only its kind is given."""
    if isinstance(curvature, str):
        require_name("curvature", curvature, get_args(CurvatureKind))
        return kronecker_curvature(problem, cast(CurvatureKind, curvature))
    must = "curvature must be a kind of kronecker_curvature or an operator over the parameters"
    require(isinstance(curvature, SymmetricOperator), must, f"got a {type(curvature).__name__}")
    fits = curvature.size == problem.num_parameters and curvature.layout in (None, problem.layout)
    got = f"it has size {curvature.size}, the problem {problem.num_parameters}, or names and shapes differ"
    require(fits, "the curvature must be that of the problem's parameters", got)
    return curvature


def curvature_name(curvature: Curvature) -> str:
    return repr(curvature).partition(" of Problem(")[0]


def has_penalty(curvature: Curvature) -> bool:
    """Whether 2 l2 is on its diagonal already."""
    return getattr(curvature, "part", None) == "loss"


def mean_eigenvalue(curvature: Curvature) -> float:
    """The trace over the size."""
    if isinstance(curvature, KroneckerCurvature):
        return float(curvature.eigenvalues().mean())
    diagonal = curvature.exact_diagonal()
    if diagonal is None:
        must, got = (
            "damping must be given for this operator",
            "the default is set by its mean eigenvalue, which is unknown",
        )
        raise InvalidInput(sentence(must, got, "Pass damping="))
    return float(diagonal.mean())


def chosen_damping(problem: Problem, curvature: Curvature, damping: float | None) -> float:
    """The damping that was given, or a tenth of the mean eigenvalue; none is needed beside a penalty."""
    if damping is None:
        return 0.0 if problem.l2 else _DAMPING * mean_eigenvalue(curvature)
    value = checked_number("damping", damping)
    require(value >= 0, "damping must not be negative", f"got {value:g}")
    return value


def total_damping(problem: Problem, curvature: Curvature, damping: float) -> float:
    """The damping and the penalty of the problem, unless the curvature contains it."""
    return damping + (0.0 if has_penalty(curvature) else 2 * problem.l2)


def damped_solve(curvature: Any, vectors: Tensor, damping: float) -> Tensor:
    """(K + damping I)^-1 of columns: by ``curvature.solve``, or by Krylov iterations where it has products alone.

    Args:
        curvature: An operator; one with ``solve(vectors, damping=)`` is asked for it.
        vectors: Vector or columns.
        damping: What is added to every eigenvalue.

    Returns:
        Tensor: The solution, in the shape of ``vectors``.

    Raises:
        InvalidInput: If the iterations do not converge.
    """
    if hasattr(curvature, "solve"):
        solved: Tensor = curvature.solve(vectors, damping=damping)
        return solved
    found = krylov_solve(curvature, vectors, shift=damping, tolerance=_TOLERANCE)
    if not found.converged:
        must, got = (
            "the damped system must be solvable",
            f"its relative residual stayed at {found.relative_residuals.max():.1g}",
        )
        raise InvalidInput(sentence(must, got, "Increase damping, or use a kind of kronecker_curvature"))
    return torch.as_tensor(found.solution).to(vectors)


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
