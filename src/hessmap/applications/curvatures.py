"""The curvature that an application works with, and what a measurement of it will take before it starts.

A curvature is a kind by name, a Kronecker-factored curvature, or any operator. The second-order model of the loss
around the parameters of a problem is risk + g.d + d^T H d / 2. A plan counts vectors, bytes, products and the seconds
of a product.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from math import ceil
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor

from hessmap.errors import InvalidInput, checked_number, require, require_name, sentence, short_text
from hessmap.hessians import Hessian, loss_hessian, outer_product_hessian
from hessmap.layers import CurvatureKind, KroneckerCurvature, kronecker_curvature
from hessmap.linalg import LinearOperator, SymmetricOperator, widest_dtype
from hessmap.measurement import SKETCH, budget_of, krylov_solve, planned_eigenpairs, probe_plan
from hessmap.problem import Problem
from hessmap.records import CostPlan

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
    got = f"it has size {curvature.size}, the problem {problem.num_parameters}, or names or shapes differ"
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


Measurement = Literal["sharpness", "top_eigenpairs", "density_estimate", "trace_estimate", "diagonal_estimate"]
# Gradients of single parameters, while they are concatenated into the image, which the iteration counts already:
# benchmarks/gpt2_sharpness.py measures 3.9 vectors where four are predicted.
_PRODUCT_VECTORS = 1
_PROBE_VECTORS = 3  # of a probe without a stored basis, and its image
_BLOCK = 16  # probes between two looks at their error
_IGNORED = ("seed", "max_products", "relative_to", "precision", "width", "relative_error", "absolute_error")


def cost_plan(
    problem: Problem | LinearOperator, measurement: Measurement, *, time_product: bool = True, **arguments: Any
) -> CostPlan:
    """Predict what a measurement holds and how many products it makes, without making it.

    Args:
        problem: A problem, whose loss Hessian is measured, or a symmetric operator.
        measurement: "sharpness", "top_eigenpairs", "density_estimate", "trace_estimate" or "diagonal_estimate".
        time_product: Whether two products are made and the second is timed. Defaults to True.
        **arguments: Arguments of the measurement: ``count``, ``tolerance``, ``method``, ``memory_budget``,
            ``num_probes``, ``num_steps``, ..

    Returns:
        CostPlan: Method, vectors and bytes held at once beside the model and its graph, products, seconds of a product.

    Raises:
        TooLarge: If the smallest form of the measurement does not fit the budget.
        InvalidInput: If the measurement or an argument is unknown.

    Notes:
        Bytes count the vectors of the measurement and the gradients that a product of a network concatenates.
        The number of products of eigenpairs is the median of measured networks to 1e-8; single networks took between
        0.6 and 1.6 times as many.

    Example:
        >>> import torch, hessmap as hm
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        >>> problem = hm.Problem(model, "cross_entropy", torch.randn(20, 3), torch.randint(2, (20,)))
        >>> plan = cost_plan(problem, "sharpness", method="three_term")
        >>> plan.method, plan.num_vectors
        ('three_term', 4)
    """
    require_name("measurement", measurement, get_args(Measurement))
    operator = loss_hessian(problem) if isinstance(problem, Problem) else problem
    require(
        isinstance(operator, LinearOperator), "cost_plan needs a Problem or an operator", f"got {short_text(problem)}"
    )
    given = {name: value for name, value in arguments.items() if name not in _IGNORED}
    size, item = operator.shape[0], operator.dtype.itemsize
    temporaries = _PRODUCT_VECTORS * size * item if isinstance(problem, Problem) else 0
    budget = budget_of(operator, given.get("memory_budget"))
    if measurement in ("sharpness", "top_eigenpairs"):
        if measurement == "sharpness":
            given = {"tolerance": 1e-6 if operator.dtype == torch.float64 else 1e-5, **given}
            given["eigenvectors"] = bool(given.pop("eigenvector", False))
        _require_known(measurement, given, _EIGENPAIRS)
        plan = planned_eigenpairs(operator, **given)
        method, num_bytes, num_products = plan.method, plan.num_bytes, plan.num_products
    elif measurement == "density_estimate":
        _require_known(measurement, given, ("num_steps", "num_probes", "method", "memory_budget"))
        method, num_bytes, num_products = _density(size, budget, **given)
    else:
        _require_known(measurement, given, ("method", "memory_budget", "known"))
        method = given.get("method", "auto")
        is_trace = measurement == "trace_estimate"
        known = given.get("known")
        probes = probe_plan(
            "trace" if is_trace else "diagonal",
            size,
            item if is_trace else widest_dtype(operator.device).itemsize,
            budget,
            sketch=0 if method in ("hutchinson", "exact") else SKETCH,
            known=0 if known is None else len(known.eigenvalues),
        )
        if method != "exact" and not probes.sketch:
            method = "hutchinson"
        num_products = size if method == "exact" else (2 * probes.sketch if known is None else 0) + _BLOCK
        num_bytes = probes.num_bytes
    seconds = _seconds(operator) if time_product else None
    num_bytes += temporaries
    return CostPlan(
        measurement=measurement,
        method=method,
        num_vectors=ceil(num_bytes / max(1, size * item)),
        num_bytes=num_bytes,
        num_products=num_products,
        seconds_per_product=seconds,
        memory_budget=budget,
        size=size,
        provenance=getattr(operator, "provenance", None),
    )


_EIGENPAIRS = ("count", "which", "tolerance", "block_size", "max_basis", "method", "eigenvectors", "memory_budget")


def _require_known(measurement: str, given: dict[str, Any], known: tuple[str, ...]) -> None:
    unknown = sorted(set(given) - set(known))
    require(not unknown, f"arguments of {measurement} must be among {', '.join(known)}", f"got {', '.join(unknown)}")


def _density(
    size: int, budget: int, num_steps: int = 64, num_probes: int = 16, method: str = "auto", **_: Any
) -> tuple[str, int, int]:
    """As ``density_estimate`` chooses: bases where they fit, else probes side by side, else one after the other."""
    steps = min(num_steps, size)
    num_products = num_probes * steps
    if method == "exact" or (method == "auto" and size <= num_products):
        return "exact", 24 * size**2, size
    stored = budget // (8 * size * (steps + 6))
    if stored:
        return "quadrature", 8 * size * (steps + 6) * min(num_probes, stored), num_products
    together = min(num_probes, max(1, budget // (8 * size * 6)))
    return "quadrature", 8 * size * (_PROBE_VECTORS + 1) * together, num_products


def _seconds(operator: LinearOperator) -> float:
    """Of the second of two products: the first one prepares the graph."""
    vector = torch.ones(operator.shape[1], 1, dtype=operator.dtype, device=operator.device)
    for _ in range(2):
        start = time.perf_counter()
        image = operator.matmat(vector)
        float(image[0, 0]) if image.numel() else None  # waits for the device
        spent = time.perf_counter() - start
    return spent
