"""The spectral density of a large operator, by stochastic Lanczos quadrature.

Gauss rules of the spectral measure come from Lanczos, for several starting vectors at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from scipy.ndimage import maximum_filter1d
from scipy.special import stdtrit
from torch import Tensor

from hessmap.errors import checked_count, checked_number, require, require_name
from hessmap.linalg import ParallelLanczos, ScaledProduct, ShardedOperator, checked_budget
from hessmap.measurement.eigenpair_iteration import PROBE_PRECISIONS, in_verified_single
from hessmap.measurement.eigenpair_plan import budget_of
from hessmap.measurement.operators_in import EPS, Floats, Matrix
from hessmap.measurement.probes import CONFIDENCE, ProbedOperator, form_errors
from hessmap.measurement.sharded import ShardedProbes
from hessmap.progress import shown_work
from hessmap.records import DensityEstimate, smoothed_density


@dataclass(frozen=True)
class GaussRules:
    """Nodes and weights (probes, steps), padded with weight 0; those of half the steps, and of one step less; which are
    of ended spaces, whose rules do not change with the steps."""

    nodes: Tensor
    weights: Tensor
    half_nodes: Tensor
    half_weights: Tensor
    earlier_nodes: Tensor
    earlier_weights: Tensor
    is_exact: Tensor

    def joined_with(self, other: GaussRules) -> GaussRules:
        width = max(self.nodes.shape[1], other.nodes.shape[1])
        half = max(self.half_nodes.shape[1], other.half_nodes.shape[1])
        earlier = max(self.earlier_nodes.shape[1], other.earlier_nodes.shape[1])
        return GaussRules(
            _stacked_rows(width, self.nodes, other.nodes),
            _stacked_rows(width, self.weights, other.weights),
            _stacked_rows(half, self.half_nodes, other.half_nodes),
            _stacked_rows(half, self.half_weights, other.half_weights),
            _stacked_rows(earlier, self.earlier_nodes, other.earlier_nodes),
            _stacked_rows(earlier, self.earlier_weights, other.earlier_weights),
            torch.cat([self.is_exact, other.is_exact]),
        )


def gauss_rules(product: ScaledProduct, starts: Tensor, num_steps: int, keep_basis: bool) -> GaussRules:
    """The rules of the columns of ``starts``, in the unit of the product, which serves all of them in every step.

    With ``keep_basis`` all vectors are stored and kept orthogonal to half of all digits, which leaves the rules right
    to all of them (Simon 1984); without, only three are stored, copies of converged nodes appear, and the sums stay
    right (Greenbaum 1989; Chen, Trogdon & Ubaru 2021).
    """
    process = lanczos_process(product, starts, num_steps, keep_basis)
    lengths = process.num_vectors.tolist()
    matrices = [matrix[:length, :length] for matrix, length in zip(process.projection, lengths, strict=True)]
    is_exact = process.has_ended | (process.num_vectors == product.size)
    return _rules_of(matrices, is_exact.tolist())


def _rules_of(matrices: Sequence[Tensor], is_exact: Sequence[bool]) -> GaussRules:
    """The rules of the tridiagonal matrices of some starts; those of ended spaces do not change with the steps."""
    lengths = [len(matrix) for matrix in matrices]
    halves = [length if is_exact[i] else max(1, length // 2) for i, length in enumerate(lengths)]
    earlier = [length if is_exact[i] else max(1, length - 1) for i, length in enumerate(lengths)]
    rules = [
        _padded_rules([_rule(matrix[:length, :length]) for matrix, length in zip(matrices, some, strict=True)])
        for some in (lengths, halves, earlier)
    ]
    return GaussRules(*rules[0], *rules[1], *rules[2], torch.tensor(is_exact))


def lanczos_process(product: ScaledProduct, starts: Tensor, num_steps: int, keep_basis: bool) -> ParallelLanczos:
    """The process of the columns of ``starts`` after ``num_steps`` steps, or when all spaces have ended."""
    num_steps = min(num_steps, product.size)
    process = ParallelLanczos(product, starts.T, num_steps, "semi_orthogonal" if keep_basis else "local")
    del starts
    while process.dimension < num_steps and process.width:
        process.expand()
    return process


def _rule(tridiagonal: Tensor) -> tuple[Tensor, Tensor]:
    """Golub & Welsch (1969): eigenvalues of the tridiagonal matrix, squares of the first entries of its vectors."""
    values, vectors = torch.linalg.eigh(tridiagonal)
    return values, vectors[0].square()


def _stacked_rows(width: int, *parts: Tensor) -> Tensor:
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in parts])


def _padded_rules(rules: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    width = max(len(nodes) for nodes, _ in rules)
    nodes = torch.stack([torch.nn.functional.pad(part, (0, width - len(part))) for part, _ in rules])
    return nodes, torch.stack([torch.nn.functional.pad(part, (0, width - len(part))) for _, part in rules])


DensityMethod = Literal["auto", "quadrature", "exact"]
_NUM_POINTS = 512  # of the curve
_LARGEST_BUDGET = 2**30  # bytes of vectors where no budget was given
_DENSE_SIZE = 6000  # up to which eigenvalues by LAPACK are worth the products that they save
_EVALUATION = 64 * EPS  # of a sum of Gaussians, whose arguments are rounded
_LEAST_WIDTH = float(np.finfo(float).tiny / np.finfo(float).eps)  # the density is at most 1 over it


@shown_work("density of the eigenvalues")
def density_estimate(
    matrix: Matrix,
    *,
    num_steps: int = 64,
    num_probes: int = 16,
    width: float | None = None,
    method: DensityMethod = "auto",
    memory_budget: float | None = None,
    precision: Literal["auto", "float64"] = "auto",
    seed: int = 0,
) -> DensityEstimate:
    """Estimate the density of the eigenvalues, smoothed by a Gaussian, with a confidence band.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator of size n.
        num_steps: Lanczos steps of each probe. Defaults to 64.
        num_probes: Random vectors, at least two. Defaults to 16.
        width: Standard deviation of the Gaussian. Default: the range of the spectrum over ``num_steps``, or its largest
            magnitude over ``num_steps`` where that range is rounding, as for a multiple of the identity.
        method: "quadrature", "exact" (all eigenvalues, by one product per dimension and LAPACK), or "auto" (default):
            exact where that takes no more products than the quadrature and the matrix fits ``memory_budget``.
        memory_budget: Bytes that may be held at once beside the operator. Lanczos keeps its vectors orthogonal where
            they fit (``reorthogonalised``); otherwise a probe needs three vectors, and probes run one after the other
            where they do not fit together. Default: the budget of the operator's problem, at most 1 GiB.
        precision: "float64", or "auto" (default): on accelerators the quadrature is made in float32 where the operator
            offers it and a random product agrees with float64.
        seed: Seed of the probes. Defaults to 0.

    Returns:
        DensityEstimate: Gauss rules of the probes, and density and band on a grid.

    Raises:
        InvalidInput: If the operator is not square, symmetric, linear and finite, if it has size 0, if the range of its
            eigenvalues overflows, or an argument is out of range. Sharded operators support "quadrature" only.

    Notes:
        A probe z of random signs gives a Gauss rule of the measure sum (z . v_i)^2 / n at the eigenvalues: exact for
        polynomials of degree 2 num_steps - 1 (Ubaru, Chen & Saad 2017; Ghorbani, Krishnan & Xiao 2019). The band is
        Student's over the probes, pointwise, with the standard error of ``form_errors``. Two terms are added: the
        distance from the rules of one step less (the largest within a width), and the effect of rounding on the nodes,
        because the probes of a diagonal matrix, or of a multiple of the identity, do not differ. The band does not
        cover structure much narrower than the steps resolve.

    Example:
        >>> found = density_estimate(np.diag([1.0, 1.0, 3.0]), num_probes=4)
        >>> round(float((found.density * np.gradient(found.grid)).sum()), 3), found.method
        (1.0, 'exact')
    """
    num_steps = checked_count("num_steps", num_steps, 1)
    num_probes = checked_count("num_probes", num_probes, 2)  # a band needs two
    budget = spectral_budget(matrix, memory_budget)
    width = None if width is None else checked_number("width", width)
    must = f"width must be positive and finite, and not below {_LEAST_WIDTH:.2g}, whose density is a number"
    require(width is None or _LEAST_WIDTH <= width < np.inf, must, f"got {width}")
    require_name("method", method, get_args(DensityMethod))
    require_name("precision", precision, PROBE_PRECISIONS)
    if isinstance(matrix, ShardedOperator):
        must = "the density of a sharded operator is estimated by quadrature"
        require(method in ("auto", "quadrature"), must, f"got method {method!r}")
        probes = ShardedProbes(matrix, seed)
        found = [probes.tridiagonal(num_steps) for _ in range(num_probes)]
        return density_record(probes, _rules_of(*zip(*found, strict=True)), num_steps, True, width)
    operator = ProbedOperator(matrix, seed)
    require(operator.size > 0, "a density needs at least one dimension", "the operator has size 0")
    num_products = num_probes * min(num_steps, operator.size)
    if method == "exact" or (method == "auto" and is_dense_worth(operator, num_products, budget)):
        operator.hint_num_products(operator.size, operator.size)
        return whole_density(operator, num_steps, width)
    operator = in_verified_single(operator, precision)
    operator.hint_num_products(num_products, num_products)
    rules, kept = probe_rules(operator, num_probes, num_steps, budget)
    return density_record(operator, rules, num_steps, kept, width)


def spectral_budget(matrix: Matrix, given: float | None) -> int:
    """Bytes of the vectors of all probes: above 1 GiB more at once is not faster."""
    if given is None:
        return min(budget_of(matrix, None), _LARGEST_BUDGET)
    return checked_budget(given, least=0)


def is_dense_worth(operator: ProbedOperator, num_products: float, memory_budget: int) -> bool:
    """Whether all eigenvalues cost at most ``num_products`` products and fit into the budget."""
    return operator.size <= min(num_products, _DENSE_SIZE) and 24 * operator.size**2 <= memory_budget


def whole_density(
    operator: ProbedOperator, num_steps: int, width: float | None = None, num_points: int = _NUM_POINTS
) -> DensityEstimate:
    """That of all eigenvalues: one rule with equal weights, and no probe. The band is what rounding may change."""
    nodes = operator.eigenvalues()[None]
    weights = np.full_like(nodes, 1 / operator.size)
    smoothing, grid = _smoothing_and_grid(operator, nodes, weights, num_steps, width, num_points)
    density = smoothed_density(grid, nodes[0], weights[0], smoothing)
    half = _rounding_of_density(operator, grid, nodes, weights, smoothing)
    return DensityEstimate(
        nodes=nodes,
        weights=weights,
        half_nodes=nodes,
        half_weights=weights,
        is_exact=np.ones(1, dtype=np.bool_),
        grid=grid,
        density=density,
        lower=np.maximum(0.0, density - half),
        upper=density + half,
        width=smoothing,
        confidence=1.0,
        num_probes=0,
        num_steps=operator.size,
        num_products=operator.num_products,
        reorthogonalised=True,
        size=operator.size,
        seed=operator.seed,
        method="exact",
        provenance=operator.provenance,
    )


def probe_rules(
    operator: ProbedOperator, num_probes: int, num_steps: int, memory_budget: int
) -> tuple[GaussRules, bool]:
    """The rules of random probes, as many side by side as the budget holds, and whether their bases were kept."""
    steps, each = min(num_steps, operator.size), operator.size * operator.product.dtype.itemsize
    together = memory_budget // (each * (steps + 6))
    keep = together >= 1
    if not keep:
        operator.use_narrow_vectors()
        each = operator.size * operator.product.dtype.itemsize
        together = max(1, memory_budget // (each * 6))
    rules: GaussRules | None = None
    for start in range(0, num_probes, together):
        found = gauss_rules(operator.product, operator.signs(min(together, num_probes - start)), num_steps, keep)
        rules = found if rules is None else rules.joined_with(found)
    assert rules is not None
    return rules, keep


def density_record(
    operator: ProbedOperator | ShardedProbes,
    rules: GaussRules,
    num_steps: int,
    kept: bool,
    width: float | None = None,
    num_points: int = _NUM_POINTS,
) -> DensityEstimate:
    """The rules with their smoothed mean on a grid."""
    nodes, weights = operator.scale * rules.nodes.numpy(), rules.weights.numpy()
    smoothing, grid = _smoothing_and_grid(operator, nodes, weights, num_steps, width, num_points)
    curves = _curves(grid, nodes, weights, smoothing)
    mean = curves.mean(0)
    squares = _curves(grid, nodes, weights, smoothing / 2**0.5)
    # The square of a Gaussian of standard deviation s is one of s / sqrt(2), times 1 / (2 sqrt(pi) s).
    mean_squares = smoothing * squares.mean(0) / (2 * np.pi**0.5)
    error = form_errors(smoothing * curves, mean_squares, operator.size) / smoothing
    earlier = _curves(grid, operator.scale * rules.earlier_nodes.numpy(), rules.earlier_weights.numpy(), smoothing)
    half = error * float(stdtrit(len(curves) - 1, (1 + CONFIDENCE) / 2))
    half += _largest_nearby(np.abs(mean - earlier.mean(0)), grid, smoothing)
    half += _rounding_of_density(operator, grid, nodes, weights, smoothing)
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
        method="quadrature",
        provenance=operator.provenance,
    )


def method_text(density: DensityEstimate) -> str:
    """For the records of numbers that are read off a density."""
    return "exact" if density.method == "exact" else f"quadrature, {density.num_steps} steps"


def _smoothing_and_grid(
    operator: ProbedOperator | ShardedProbes,
    nodes: Floats,
    weights: Floats,
    num_steps: int,
    width: float | None,
    num_points: int,
) -> tuple[float, Floats]:
    used = nodes[weights > 0]
    low, high = float(used.min()), float(used.max())
    # A spread that is rounding alone, as of a multiple of the identity, resolves nothing.
    spread = high - low if high - low > 2 * _node_rounding(operator, nodes) else max(abs(low), abs(high))
    smoothing = max(_LEAST_WIDTH, spread / min(num_steps, operator.size)) if width is None else width
    ends = low - 4 * smoothing, high + 4 * smoothing
    must, got = "the range of a density must be a finite number", f"the eigenvalues go from {low:.3g} to {high:.3g}"
    require(bool(np.isfinite(ends[1] - ends[0])), must, got, "Scale the matrix down")
    return smoothing, np.linspace(*ends, num_points)


def _curves(grid: Floats, nodes: Floats, weights: Floats, width: float) -> Floats:
    """The smoothed density of every rule."""
    return np.stack([smoothed_density(grid, *rule, width) for rule in zip(nodes, weights, strict=True)])


def _largest_nearby(values: Floats, grid: Floats, width: float) -> Floats:
    """The largest value within a width of each point: two curves with ripples cross, where neither is right."""
    reach = min(len(grid), int(np.ceil(width / (grid[1] - grid[0]))))
    found: Floats = maximum_filter1d(values, 2 * reach + 1, mode="nearest")
    return found


def _node_rounding(operator: ProbedOperator | ShardedProbes, nodes: Floats) -> float:
    return operator.rounding * float(np.abs(nodes).max())


def _rounding_of_density(
    operator: ProbedOperator | ShardedProbes, grid: Floats, nodes: Floats, weights: Floats, width: float
) -> Floats:
    """How far the mean density moves at most where rounding moves every node, and by its own evaluation: to first
    order by the slope of the Gaussians, to second order by their largest curvature."""
    moved = min(1.0, _node_rounding(operator, nodes) / width)
    peak = 1 / (width * (2 * np.pi) ** 0.5)
    slopes = np.zeros_like(grid)
    for own_nodes, own_weights in zip(nodes, weights, strict=True):
        distances = np.abs(grid[:, None] - own_nodes) / width
        slopes += (distances * np.exp(-0.5 * np.square(distances))) @ own_weights / len(nodes)
    found: Floats = peak * np.minimum(1.0, moved * slopes + 0.5 * moved**2 + _EVALUATION)
    return found
