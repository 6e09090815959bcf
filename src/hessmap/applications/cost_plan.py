"""What a measurement of a model will take before it starts: vectors, bytes, products, seconds of a product."""

from __future__ import annotations

import time
from math import ceil
from typing import Any, Literal, get_args

import torch

from hessmap.errors import require, require_name, short_text
from hessmap.hessians import loss_hessian
from hessmap.linalg import LinearOperator, widest_dtype
from hessmap.measurement import SKETCH, budget_of, planned_eigenpairs, probe_plan
from hessmap.problem import Problem
from hessmap.records import CostPlan

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
    require(not unknown, f"arguments of {measurement} must be of {', '.join(known)}", f"got {', '.join(unknown)}")


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
