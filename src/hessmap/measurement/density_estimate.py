"""The spectral density of a large operator, by stochastic Lanczos quadrature."""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from hessmap.errors import checked_count, checked_number, require
from hessmap.measurement.matrices import Matrix
from hessmap.measurement.quadrature import GaussRules, gauss_rules
from hessmap.measurement.random_probes import CONFIDENCE, ProbedOperator, form_errors
from hessmap.progress import shown_work
from hessmap.results import DensityEstimate
from hessmap.results.whole_curvature import smoothed_density

_NUM_POINTS = 512
_LEAST_WIDTH = float(np.finfo(float).tiny / np.finfo(float).eps)  # the density is at most 1 over it


@shown_work("density of the eigenvalues")
def density_estimate(
    matrix: Matrix,
    *,
    num_steps: int = 64,
    num_probes: int = 16,
    width: float | None = None,
    memory_budget: int = 2**30,
    seed: int = 0,
) -> DensityEstimate:
    """The density of the eigenvalues, smoothed by a Gaussian of standard deviation ``width``, with a confidence band.

    A probe z of random signs makes a Gauss rule of the measure sum (z . v_i)^2 / n at the eigenvalues: exact for
    polynomials of degree 2 num_steps - 1 (Ubaru, Chen & Saad 2017; Ghorbani, Krishnan & Xiao 2019). The band is
    Student's over the probes, at each point by itself, with the standard error of ``form_error``; it does not know what
    is narrower than the steps resolve: ``width`` is by default the range of the spectrum over ``num_steps``. Lanczos
    keeps its vectors orthogonal while they fit into ``memory_budget``, and ``reorthogonalised`` says whether it did.

    >>> found = density_estimate(np.diag([1.0, 1.0, 3.0]), num_probes=4)
    >>> round(float((found.density * np.gradient(found.grid)).sum()), 3)
    1.0
    """
    num_steps = checked_count("num_steps", num_steps, 1)
    num_probes = checked_count("num_probes", num_probes, 2)  # a band needs two
    memory_budget = checked_count("memory_budget", memory_budget, 0)
    width = None if width is None else checked_number("width", width)
    must = f"width must be positive and finite, and not below {_LEAST_WIDTH:.2g}, whose density is a number"
    require(width is None or _LEAST_WIDTH <= width < np.inf, must, f"got {width}")
    operator = ProbedOperator(matrix, seed)
    require(operator.size > 0, "a density needs at least one dimension", "the operator has size 0")
    num_products = num_probes * min(num_steps, operator.size)
    operator.expect_products(num_products, num_products)
    rules, kept = probe_rules(operator, num_probes, num_steps, memory_budget)
    return density_record(operator, rules, num_steps, kept, width)


def probe_rules(
    operator: ProbedOperator, num_probes: int, num_steps: int, memory_budget: int
) -> tuple[GaussRules, bool]:
    """The rules of random probes, as many side by side as the budget holds, and whether their bases were kept."""
    steps = min(num_steps, operator.size)
    together = memory_budget // (8 * operator.size * (steps + 6))
    keep = together >= 1
    if not keep:
        operator.use_narrow_vectors()
        together = max(1, memory_budget // (8 * operator.size * 6))
    rules: GaussRules | None = None
    for start in range(0, num_probes, together):
        found = gauss_rules(operator.product, operator.signs(min(together, num_probes - start)), num_steps, keep)
        rules = found if rules is None else rules.joined_with(found)
    assert rules is not None
    return rules, keep


def density_record(
    operator: ProbedOperator,
    rules: GaussRules,
    num_steps: int,
    kept: bool,
    width: float | None = None,
    num_points: int = _NUM_POINTS,
) -> DensityEstimate:
    """The rules with their smoothed mean on a grid."""
    nodes, weights = operator.scale * rules.nodes.numpy(), rules.weights.numpy()
    used = nodes[weights > 0]
    low, high = float(used.min()), float(used.max())
    spread = (high - low) or abs(high)
    smoothing = max(_LEAST_WIDTH, spread / min(num_steps, operator.size)) if width is None else width
    ends = low - 4 * smoothing, high + 4 * smoothing
    must, got = "the range of a density must be a finite number", f"the eigenvalues go from {low:.3g} to {high:.3g}"
    require(bool(np.isfinite(ends[1] - ends[0])), must, got, "Scale the matrix down")
    grid = np.linspace(*ends, num_points)
    curves = np.stack([smoothed_density(grid, *rule, smoothing) for rule in zip(nodes, weights, strict=True)])
    mean = curves.mean(0)
    squares = np.stack([smoothed_density(grid, *rule, smoothing / 2**0.5) for rule in zip(nodes, weights, strict=True)])
    # The square of a Gaussian of standard deviation s is one of s / sqrt(2), times 1 / (2 sqrt(pi) s).
    mean_squares = smoothing * squares.mean(0) / (2 * np.pi**0.5)
    error = form_errors(smoothing * curves, mean_squares, operator.size) / smoothing
    half = error * float(stdtrit(len(curves) - 1, (1 + CONFIDENCE) / 2))
    return DensityEstimate(
        nodes=nodes,
        weights=weights,
        half_nodes=operator.scale * rules.half_nodes.numpy(),
        half_weights=rules.half_weights.numpy(),
        is_exact=rules.is_exact.numpy(),
        grid=grid,
        density=mean,
        lower=np.maximum(0.0, mean - half),
        upper=mean + half,
        width=smoothing,
        confidence=CONFIDENCE,
        num_probes=len(nodes),
        num_steps=num_steps,
        num_products=operator.num_products,
        reorthogonalised=kept,
        size=operator.size,
        seed=operator.seed,
        provenance=operator.provenance,
    )
