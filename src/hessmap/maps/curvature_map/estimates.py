"""A map from matrix-vector products alone: eigenvalues, traces, layers and the density, within a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from scipy.special import ndtr, stdtrit

from hessmap.hessians import Hessian, loss_hessian, outer_product_hessian
from hessmap.linalg import available_bytes, frobenius_norm, readable_bytes
from hessmap.maps.curvature_map.dense import Progress, description
from hessmap.maps.curvature_map.layers import (
    LEAST_STEPS,
    Block,
    BlockTops,
    block_numbers,
    block_tops,
    blocks_of,
    curvature_spread,
    direction_share,
    measured_factors,
)
from hessmap.maps.curvature_map.plan import ProductBudget, optional_part
from hessmap.measurement import (
    BlockTraces,
    Floats,
    block_traces,
    default_block,
    density_estimate,
    effective_dimension_estimate,
    eigenpairs_bytes,
    form_errors,
    largest_ritz_value,
    negative_share,
    top_eigenpairs,
    verified_single,
)
from hessmap.problem import Problem
from hessmap.records import (
    DENSITY_WIDTH,
    NUM_EIGENVALUES,
    CurvatureSpread,
    DensityCurve,
    DensityEstimate,
    EigenpairsMeasurement,
    FactorCurvature,
    LayerCurvature,
    MapWork,
    NetworkCurvature,
    SharpnessMeasurement,
    SpectralEstimate,
    SymmetricLogScale,
    WholeCurvature,
    smoothed_kernels,
)

_FEW = 10.0  # eigenvalues: a random probe gives one of them more than ten times its share once in 600 times


def resolved_density(found: DensityEstimate) -> DensityCurve:
    """The mean of the rules of all probes on a symmetric logarithmic scale, with its band over the probes; the density
    of the eigenvalues where all of them are known.

    On that scale an outlier has the same width wherever it is. A node whose weight is that of a few eigenvalues is
    drawn as one; a node with more weight stands for eigenvalues anywhere between its neighbours, which the steps did
    not tell apart (Chebyshev, Markov & Stieltjes), and its weight is spread evenly between the middles to these.

    >>> from hessmap.measurement import density_estimate
    >>> estimate = density_estimate(np.diag([100.0, 1.0, 1.0, 0.5]), num_probes=4, method="quadrature")
    >>> curve = resolved_density(estimate)
    >>> round(float(np.trapezoid(curve.density, curve.grid)), 2)
    1.0
    """
    if found.method == "exact":
        return DensityCurve.of_eigenvalues(found.nodes[0])
    used = [weights > 0 for weights in found.weights]
    rules = [
        (nodes[kept], weights[kept]) for nodes, weights, kept in zip(found.nodes, found.weights, used, strict=True)
    ]
    everywhere = np.concatenate([nodes for nodes, _ in rules])
    scale = SymmetricLogScale.of(everywhere, float(np.median([_resolution(*rule) for rule in rules])))
    grid = scale.grid(everywhere)
    kernels = [_kernels(grid, scale.places(nodes), weights, found.size) for nodes, weights in rules]
    curves = np.stack([kernel @ weights for kernel, (_, weights) in zip(kernels, rules, strict=True)])
    squares = np.stack([np.square(kernel) @ weights for kernel, (_, weights) in zip(kernels, rules, strict=True)])
    half = form_errors(curves, squares.mean(0), found.size) * float(
        stdtrit(len(curves) - 1, (1 + found.confidence) / 2)
    )
    mean = curves.mean(0)
    return scale.curve(
        grid, mean, np.maximum(0.0, mean - half), mean + half, found.confidence, found.num_probes, found.size
    )


def _resolution(nodes: Floats, weights: Floats) -> float:
    """A quarter of the distance from the node with the most weight to the nearest other one."""
    others = np.delete(nodes, weights.argmax())
    return float(np.abs(others - nodes[weights.argmax()]).min()) / 4 if len(others) else 0.0


def _kernels(grid: Floats, places: Floats, weights: Floats, size: int) -> Floats:
    """What each node of a rule adds to the density for its weight, as columns; nodes come in ascending order."""
    middles = (places[1:] + places[:-1]) / 2
    left, right = np.concatenate([places[:1], middles]), np.concatenate([middles, places[-1:]])
    is_spread = (weights * size >= _FEW) & (right - left > DENSITY_WIDTH)
    even = ndtr((grid[:, None] - left) / DENSITY_WIDTH) - ndtr((grid[:, None] - right) / DENSITY_WIDTH)
    length = np.where(is_spread, right - left, 1.0)
    found: Floats = np.where(is_spread, even / length, smoothed_kernels(grid, places, DENSITY_WIDTH))
    return found


_TOLERANCE, _ROUGH_TOLERANCE = 1e-3, 1e-2  # of the eigenpairs, relative to the norm
_RELATIVE_ERROR = 0.05  # of traces
_PER_BLOCK, _FLOOR_PER_BLOCK = 16, 6  # from the sharpest direction of the whole, six steps find most tops to a percent
_NUM_PROBES = 4  # of a density
_NUM_STEPS = 24  # of a density with fewer probes, in which the outliers of a spectrum stand apart from its bulk
_RESTART = 32  # products that a random restart may take beyond those that were allowed
_FEWEST_OF_PAIR = 16  # products in which the largest eigenpair of most networks is found roughly
_SINGLE_FROM = 10_000  # parameters from which on products in float32 take half the time or less
_SINGLE_GAIN = 3.0  # how much more a product in float64 is taken to cost there
_MOST_APART = 1e-3  # of a product: where both formats differ by more, float32 is not used

# Products of every stage: at most, those below which its result says little, those that it cannot do without.
_CAPS = {"eigenvalues": 160, "density": 192, "trace": 64, "outer trace": 64, "dimension": 96}
_FLOORS = {"eigenvalues": 40, "density": 2 * _NUM_STEPS, "trace": 8, "outer trace": 8}
_LEAST = {"eigenvalues": 4, "density": 4, "trace": 2}


def product_budget(
    num_blocks: int,
    seconds: float | None,
    seconds_per_product: float,
    clock: Callable[[], float] = time.perf_counter,
) -> ProductBudget:
    """The products of all stages: a few for every layer come before the rest of any other stage."""
    return ProductBudget(
        seconds,
        {**_CAPS, "blocks": _PER_BLOCK * num_blocks},
        seconds_per_product,
        clock=clock,
        floors={**_FLOORS, "blocks": _FLOOR_PER_BLOCK * num_blocks},
        least={**_LEAST, "blocks": LEAST_STEPS * num_blocks},
    )


def fast_hessian(hessian: Hessian, seed: int) -> Hessian:
    """The same Hessian in float32 where that saves time and has the same products; else as it is."""
    single = verified_single(hessian, seed, _MOST_APART) if hessian.size >= _SINGLE_FROM else None
    return single if isinstance(single, Hessian) else hessian


class Stages:
    """What products tell of a problem.

    ``fast`` makes the products of all that is right to a percent. ``gap`` says why there is no outer-product Hessian
    where there is none, ``notes`` which other parts are not available.
    """

    def __init__(
        self,
        problem: Problem,
        hessian: Hessian,
        fast: Hessian,
        blocks: tuple[Block, ...],
        budget: ProductBudget,
        say: Progress,
        seed: int,
    ) -> None:
        self.problem = problem
        self.hessian = hessian
        self.blocks = blocks
        self.fast = fast
        self.numbers = block_numbers(blocks, problem.num_parameters)
        self.budget = budget
        self.say = say
        self.seed = seed
        self.outer, self.gap = optional_part(lambda: _outer_product(problem))
        self.notes: list[str] = []

    def eigenvalues(self) -> tuple[EigenpairsMeasurement | None, SharpnessMeasurement]:
        """The largest ones with their vectors; where time or memory is short, the largest alone, without a vector."""
        size = self.problem.num_parameters
        with self._stage("eigenvalues", "largest eigenvalues") as stage:
            count = min(NUM_EIGENVALUES, size) if stage.allowed >= _CAPS["eigenvalues"] // 2 else 1
            width = default_block(self.hessian, size, count)
            fits = eigenpairs_bytes(size, count, width, self.hessian.dtype) <= self._free_bytes // 2
            if not fits or stage.allowed < _FEWEST_OF_PAIR:
                found = largest_ritz_value(self.hessian, max(4, stage.allowed), seed=self.seed)
                stage.products = found.num_products
                return None, found
            tolerance = _TOLERANCE if count > 1 else _ROUGH_TOLERANCE
            most = max(_FEWEST_OF_PAIR, stage.allowed - _RESTART)
            pairs, reason = optional_part(
                lambda: top_eigenpairs(self.hessian, count, tolerance=tolerance, max_products=most, seed=self.seed)
            )
            if pairs is None:
                self.notes.append(f"the eigenvectors of the largest eigenvalues are not available: {reason}")
                found = largest_ritz_value(self.hessian, stage.allowed, seed=self.seed)
                stage.products = found.num_products
                return None, found
            stage.products = pairs.num_products
        largest, residual = float(pairs.eigenvalues[0]), float(pairs.residuals[0])
        measured = SharpnessMeasurement(
            value=largest,
            residual=residual,
            converged=pairs.converged or residual <= _ROUGH_TOLERANCE * abs(largest),  # others may need more products
            largest_stable_step=2 / largest if largest > 0 else float("inf"),
            num_products=pairs.num_products,
            size=pairs.size,
            seed=pairs.seed,
        )
        return pairs, measured

    def traces(self, pairs: EigenpairsMeasurement | None) -> BlockTraces:
        with self._stage("trace", "trace of the network and of its layers") as stage:
            return self._block_traces(self.hessian, self.fast, pairs, stage)

    def density(self) -> DensityEstimate:
        with self._stage("density", "density of the eigenvalues") as stage:
            num_probes, num_steps = _density_size(stage.allowed)
            found, reason = optional_part(
                lambda: density_estimate(self.fast, num_probes=num_probes, num_steps=num_steps, seed=self.seed)
            )
            if found is None:
                self.notes.append(f"the density has only two steps: {reason}")
                found = density_estimate(self.hessian, num_probes=2, num_steps=2, memory_budget=0, seed=self.seed)
            stage.products = found.num_products
        return found

    def outer_traces(self, pairs: EigenpairsMeasurement | None) -> BlockTraces | None:
        with self._stage("outer trace", "shares of the layers") as stage:
            outer = self.outer
            if outer is None:
                self.notes.append("shares of the layers are those of the trace of H_L, because H_o is not available")
                return None
            found, reason = optional_part(lambda: self._block_traces(outer, self._fast_outer, pairs, stage))
            if found is None:
                self.notes.append(f"shares are those of the trace of H_L, as that of H_o is not available: {reason}")
        return found

    def _block_traces(
        self, hessian: Hessian, fast: Hessian, pairs: EigenpairsMeasurement | None, stage: _Stage
    ) -> BlockTraces:
        """Exact where the structure of the layers tells the diagonal at this cost, else from probes."""
        most = stage.allowed if fast is hessian else stage.allowed / _SINGLE_GAIN
        diagonal, _ = optional_part(lambda: hessian.exact_diagonal(max_products=most))
        if diagonal is not None and bool(torch.isfinite(diagonal).all()):
            sums = torch.zeros(len(self.blocks), dtype=torch.float64).index_add_(0, self.numbers, diagonal)
            whole = SpectralEstimate.of_known("trace", float(diagonal.sum()), len(diagonal))
            return BlockTraces(sums.numpy(), np.zeros(len(self.blocks)), whole)
        found = block_traces(
            fast,
            self.numbers,
            known=pairs,
            relative_error=_RELATIVE_ERROR,
            max_products=max(2, stage.allowed),
            seed=self.seed,
        )
        stage.products = found.whole.num_products
        return found

    def dimension(self, outer_trace: float) -> SpectralEstimate | None:
        """Of the outer-product Hessian; None, with ``gap``, where there is none or the products do not resolve it."""
        with self._stage("dimension", "effective dimension") as stage:
            if self.outer is None:
                return None
            if stage.allowed < 2 * _NUM_STEPS:
                self.gap = "it is not resolved within the time"
                return None
            num_probes, num_steps = _density_size(stage.allowed)
            density, reason = optional_part(
                lambda: density_estimate(self._fast_outer, num_probes=num_probes, num_steps=num_steps, seed=self.seed)
            )
            if density is None:
                self.gap = reason
                return None
            stage.products = density.num_products
        epsilon = 1 / self.problem.num_samples
        found = effective_dimension_estimate(density, epsilon)
        # No more than the rank, which the number of outputs bounds, and no more than the sum of h / epsilon.
        most = min(found.size, self.problem.num_samples * self.problem.num_outputs, outer_trace / epsilon)
        low, high = (min(max(0.0, end), most) for end in found.interval)
        return replace(found, value=min(found.value, most), interval=(low, high), provenance=None)

    def tops(self, pairs: EigenpairsMeasurement | None) -> BlockTops:
        """The largest eigenvalue of every block, from the sharpest direction of the whole network where it is known."""
        size = self.problem.num_parameters
        fitting = max(LEAST_STEPS, self._free_bytes // 2 // (8 * max(1, size)))
        start = None if pairs is None or pairs.eigenvectors is None else torch.from_numpy(pairs.eigenvectors[:, 0])
        with self._stage("blocks", "largest eigenvalues of the layers") as stage:
            found = block_tops(
                self.fast,
                self.numbers,
                start=start,
                max_products=stage.allowed,
                max_steps=min(_PER_BLOCK, fitting),
                seed=self.seed,
            )
            stage.products = found.num_products
        return found

    @property
    def _free_bytes(self) -> int:
        return self.problem.least(available_bytes())

    @cached_property
    def _fast_outer(self) -> Hessian:
        """The outer-product Hessian in the format of ``fast``, whose products were compared with those in float64."""
        assert self.outer is not None
        single = None if self.fast is self.hessian else self.outer.in_single_precision()
        return self.outer if single is None else single

    @contextmanager
    def _stage(self, name: str, text: str) -> Iterator[_Stage]:
        self.say(text)
        start = self.budget.elapsed
        stage = _Stage(self.budget.allowed_products(name))
        yield stage
        self.budget.spend(stage.products, self.budget.elapsed - start)


@dataclass
class _Stage:
    allowed: int
    products: int = 0


def _outer_product(problem: Problem) -> Hessian:
    """With a first product: a loss that is known by its value alone has no outer-product Hessian."""
    hessian = outer_product_hessian(problem)
    hessian.matmat(torch.zeros(hessian.size, 1, dtype=hessian.dtype))
    return hessian


def _density_size(allowed: int) -> tuple[int, int]:
    """Probes and steps: more than two probes where each of them has steps enough to resolve outliers."""
    num_probes = max(2, min(_NUM_PROBES, allowed // _NUM_STEPS))
    return num_probes, max(2, allowed // num_probes)


_LARGEST_FACTOR = 1024  # inputs and outputs of a layer up to which its factors are decomposed


@dataclass(frozen=True)
class Estimates:
    """What was found of a network, and what it took."""

    network: NetworkCurvature
    work: MapWork


@torch.enable_grad()
def curvature_estimates(
    problem: Problem, reason: str, say: Progress, announce: Progress, seconds: float | None, seed: int
) -> Estimates:
    """Everything a map holds without a dense Hessian. ``announce`` gets the plan, ``say`` what is done next."""
    hessian, blocks = loss_hessian(problem), blocks_of(problem)

    def clock() -> float:
        """The time of the first process, so that all of them plan the same products."""
        return problem.agreed(time.perf_counter())

    start = clock()
    fast = fast_hessian(hessian, seed)
    each = seconds_per_product(fast)
    left = None if seconds is None else seconds - (clock() - start)
    budget = product_budget(len(blocks), left, each, clock)
    planned, num_bytes = budget.planned_products, _num_bytes(problem)
    planned_seconds = planned * each
    announce(
        f"estimates from products ({reason}): up to {planned:,} products, about {planned_seconds:.2g} s at "
        f"{each:.2g} s each, {readable_bytes(num_bytes)}"
    )
    stages = Stages(problem, hessian, fast, blocks, budget, say, seed)
    if fast is not hessian:
        stages.notes.append("products for layers, traces and densities were made in float32")
    network = _network(stages, reason)
    took = clock() - start
    work = MapWork("products", planned, budget.num_products, num_bytes, seconds, planned_seconds, took)
    return Estimates(network, work)


def seconds_per_product(hessian: Hessian) -> float:
    """Of one vector, after a first product that may be slower than all others."""
    vector = torch.ones(hessian.size, 1, dtype=hessian.dtype)
    hessian.matmat(vector)
    start = time.perf_counter()
    hessian.matmat(vector)
    return hessian.problem.agreed(time.perf_counter() - start)


def _num_bytes(problem: Problem) -> int:
    """Of the vectors that are held at once, beside the model's own tensors."""
    size = problem.num_parameters
    return min(eigenpairs_bytes(size, min(NUM_EIGENVALUES, size), 1), max(available_bytes() // 2, 8 * 16 * size))


def _network(stages: Stages, reason: str) -> NetworkCurvature:
    """All stages, and the record of what they found."""
    pairs, sharpness = stages.eigenvalues()
    tops = stages.tops(pairs)
    traces = stages.traces(pairs)
    density = stages.density()
    outer = stages.outer_traces(pairs)
    shares, share_errors, outer_trace = _shares(traces if outer is None else outer)
    dimension = stages.dimension(outer_trace)
    stages.say("factors of the layers")
    factors, factors_gap = _factors(stages)
    direction = None if pairs is None or pairs.eigenvectors is None else pairs.eigenvectors[:, 0]
    layers = tuple(
        LayerCurvature(
            name=block.name,
            shape=block.shape,
            num_parameters=block.num_parameters,
            rank=None,
            top_eigenvalue=float(tops.values[place]),
            trace=float(traces.values[place]),
            curvature_share=float(shares[place]),
            factors=factors.get(block.name),
            kind=block.kind,
            trace_error=float(traces.standard_errors[place]),
            share_error=float(share_errors[place]),
            top_residual=float(tops.residuals[place]),
            top_converged=bool(tops.converged[place]),
            direction_share=None if direction is None else direction_share(direction, block),
        )
        for place, block in enumerate(stages.blocks)
    )
    whole = WholeCurvature(
        sharpness=replace(sharpness, provenance=None),
        eigenvalues=np.array([sharpness.value]) if pairs is None else pairs.eigenvalues,
        trace=replace(traces.whole, provenance=None),
        negative_share=replace(negative_share(density), provenance=None),
        effective_dimension=dimension,
        epsilon=1 / stages.problem.num_samples,
        density=resolved_density(density),
        gap=stages.gap,
    )
    spread = None if outer is None else curvature_spread(layers, outer_trace)  # of H_o
    record = _record(stages, layers, whole, spread, factors_gap, reason)
    return record if outer is not None else replace(record, shares_of="loss")


def _record(
    stages: Stages,
    layers: tuple[LayerCurvature, ...],
    whole: WholeCurvature,
    spread: CurvatureSpread | None,
    factors_gap: str,
    reason: str,
) -> NetworkCurvature:
    problem = stages.problem
    return NetworkCurvature(
        name="network",
        description=description(problem.model),
        loss=problem.loss.name,
        num_samples=problem.num_samples,
        num_parameters=problem.num_parameters,
        risk=problem.risk(),
        gradient_norm=frobenius_norm(problem.gradient().double().cpu().numpy()),
        parts=(),
        layers=layers,
        effective_dimension=None,
        data_ranks=None,
        prediction_gap="no dense Hessian was formed, so there is no rank to compare with",
        notes=(*problem.notes, *stages.notes),
        factors_gap=factors_gap,
        whole=whole,
        spread=spread,
        reason=reason,
    )


def _factors(stages: Stages) -> tuple[dict[str, FactorCurvature], str]:
    widest = max((max(stages.problem.layout.shape(name), default=0) for name in stages.problem.layout.names), default=0)
    if widest > _LARGEST_FACTOR:
        return {}, f"a layer is {widest:,} wide, and factors are decomposed up to {_LARGEST_FACTOR:,}"
    found, gap = optional_part(lambda: measured_factors(stages.problem, None, stages.budget.has_time))
    return ({}, gap) if found is None else found


def _shares(traces: BlockTraces) -> tuple[Floats, Floats, float]:
    """The share of each block, its error, and the whole: what an estimate has below zero is its error."""
    values = traces.values.clip(min=0.0)
    whole = float(values.sum())
    return values / (whole or 1.0), traces.standard_errors / (whole or 1.0), whole
