"""A network whose Hessians are not formed: the whole, its layers and its spectrum from products, within a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from hessmap.curvature import Problem, loss_hessian, outer_product_hessian
from hessmap.curvature.hessians import Hessian
from hessmap.curvature.memory import available_bytes, readable_bytes
from hessmap.curvature.operator import PrincipalBlock
from hessmap.errors import HessmapError
from hessmap.maps.curvature_map.blocks import Block, block_numbers, blocks_of
from hessmap.maps.curvature_map.layers import direction_share, measured_factors
from hessmap.maps.curvature_map.network import Progress, description
from hessmap.maps.curvature_map.plan import ProductBudget
from hessmap.maps.curvature_map.spread import curvature_spread
from hessmap.measurement import (
    block_traces,
    density_estimate,
    largest_ritz_value,
    negative_share,
    top_eigenpairs,
)
from hessmap.measurement.block_traces import BlockTraces
from hessmap.measurement.matrices import Floats
from hessmap.measurement.spectral_sum_estimates import effective_dimension_estimate
from hessmap.measurement.top_eigenpairs import default_block, eigenpairs_bytes
from hessmap.results import DensityCurve, DensityEstimate, EigenpairsMeasurement, SharpnessMeasurement, SpectralEstimate
from hessmap.results.maps import FactorCurvature, LayerCurvature, NetworkCurvature
from hessmap.results.whole_curvature import NUM_EIGENVALUES, MapWork, WholeCurvature

_TOLERANCE, _ROUGH_TOLERANCE = 1e-3, 1e-2  # of the eigenpairs, relative to the norm
_RELATIVE_ERROR = 0.05  # of traces
# Products of every stage at most; those of the blocks are for each of them.
_CAPS = {"eigenvalues": 160, "trace": 64, "density": 192, "outer trace": 64, "dimension": 96}
_PER_BLOCK = 16
_NUM_PROBES = 4  # of a density
_RESTART = 32  # products that a random restart may take beyond those that were allowed
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
    start = time.perf_counter()
    each = seconds_per_product(hessian)
    caps = {**_CAPS, "blocks": _PER_BLOCK * len(blocks)}
    budget = ProductBudget(None if seconds is None else seconds - (time.perf_counter() - start), caps, each)
    planned, num_bytes = budget.planned_products, _num_bytes(problem)
    planned_seconds = planned * each
    announce(
        f"estimates from products ({reason}): up to {planned:,} products, about {planned_seconds:.2g} s at "
        f"{each:.2g} s each, {readable_bytes(num_bytes)}"
    )
    stages = _Stages(problem, hessian, blocks, budget, say, seed)
    network = stages.run(reason)
    took = time.perf_counter() - start
    work = MapWork("products", planned, budget.num_products, num_bytes, seconds, planned_seconds, took)
    return Estimates(network, work)


def seconds_per_product(hessian: Hessian) -> float:
    """Of one vector, after a first product that may be slower than all others."""
    vector = torch.ones(hessian.size, 1, dtype=hessian.dtype)
    hessian.matmat(vector)
    start = time.perf_counter()
    hessian.matmat(vector)
    return time.perf_counter() - start


def _num_bytes(problem: Problem) -> int:
    """Of the vectors that are held at once, beside the model's own tensors."""
    size = problem.num_parameters
    return min(eigenpairs_bytes(size, min(NUM_EIGENVALUES, size), 1), max(available_bytes() // 2, 8 * 16 * size))


class _Stages:
    """The stages of an estimate, one after the other, all within one budget."""

    def __init__(
        self,
        problem: Problem,
        hessian: Hessian,
        blocks: tuple[Block, ...],
        budget: ProductBudget,
        say: Progress,
        seed: int,
    ) -> None:
        self.problem = problem
        self.hessian = hessian
        self.blocks = blocks
        self.numbers = block_numbers(blocks, problem.num_parameters)
        self.budget = budget
        self.say = say
        self.seed = seed
        self.outer, self.gap = _outer_product(problem)

    def run(self, reason: str) -> NetworkCurvature:
        problem = self.problem
        pairs, sharpness = self._eigenvalues()
        traces = self._traces(pairs)
        with self._stage("density", "density of the eigenvalues") as stage:
            density = density_estimate(self.hessian, seed=self.seed, **_density_size(stage.allowed))
            stage.products = density.num_products
        outer = self._outer_traces(pairs)
        dimension = self._dimension()
        shares, share_errors, outer_trace = _shares(traces if outer is None else outer)
        tops = self._tops(shares)
        self.say("factors of the layers")
        factors, factors_gap = self._factors()
        direction = None if pairs is None or pairs.eigenvectors is None else pairs.eigenvectors[:, 0]
        layers = tuple(
            LayerCurvature(
                name=block.name,
                shape=block.shape,
                num_parameters=block.num_parameters,
                rank=None,
                top_eigenvalue=None if (top := tops.get(block.name)) is None else top.value,
                trace=float(traces.values[place]),
                curvature_share=float(shares[place]),
                factors=factors.get(block.name),
                kind=block.kind,
                trace_error=float(traces.standard_errors[place]),
                share_error=float(share_errors[place]),
                top_residual=None if top is None else top.residual,
                direction_share=None if direction is None else direction_share(direction, block),
            )
            for place, block in enumerate(self.blocks)
        )
        whole = WholeCurvature(
            sharpness=replace(sharpness, provenance=None),
            eigenvalues=np.array([sharpness.value]) if pairs is None else pairs.eigenvalues,
            trace=replace(traces.whole, provenance=None),
            negative_share=replace(negative_share(density), provenance=None),
            effective_dimension=dimension,
            epsilon=1 / problem.num_samples,
            density=_curve(density),
            gap=self.gap,
        )
        return NetworkCurvature(
            name="network",
            description=description(problem.model),
            loss=problem.loss.name,
            num_samples=problem.num_samples,
            num_parameters=problem.num_parameters,
            risk=problem.risk(),
            gradient_norm=float(problem.gradient().norm()),
            parts=(),
            layers=layers,
            effective_dimension=None,
            data_ranks=None,
            prediction_gap="no Hessian was formed whose rank could be held against one",
            notes=problem.notes,
            factors_gap=factors_gap,
            whole=whole,
            spread=curvature_spread(layers, outer_trace),
            reason=reason,
        )

    def _eigenvalues(self) -> tuple[EigenpairsMeasurement | None, SharpnessMeasurement]:
        """The largest ones with their vectors; where time or memory is short, the largest alone, without a vector."""
        size = self.problem.num_parameters
        with self._stage("eigenvalues", "largest eigenvalues") as stage:
            count = min(NUM_EIGENVALUES, size) if stage.allowed >= _CAPS["eigenvalues"] // 2 else 1
            width = default_block(self.hessian, size, count)
            fits = eigenpairs_bytes(size, count, width, self.hessian.dtype) <= available_bytes() // 2
            if not fits or stage.allowed < _RESTART + 8:
                found = largest_ritz_value(self.hessian, max(4, stage.allowed), seed=self.seed)
                stage.products = found.num_products
                return None, found
            tolerance = _TOLERANCE if count > 1 else _ROUGH_TOLERANCE
            pairs = top_eigenpairs(
                self.hessian, count, tolerance=tolerance, max_products=stage.allowed - _RESTART, seed=self.seed
            )
            stage.products = pairs.num_products
        largest = float(pairs.eigenvalues[0])
        measured = SharpnessMeasurement(
            value=largest,
            residual=float(pairs.residuals[0]),
            converged=pairs.converged,
            largest_stable_step=2 / largest if largest > 0 else float("inf"),
            num_products=pairs.num_products,
            size=pairs.size,
            seed=pairs.seed,
        )
        return pairs, measured

    def _traces(self, pairs: EigenpairsMeasurement | None) -> BlockTraces:
        with self._stage("trace", "trace of the network and of its layers") as stage:
            return self._block_traces(self.hessian, pairs, stage)

    def _outer_traces(self, pairs: EigenpairsMeasurement | None) -> BlockTraces | None:
        with self._stage("outer trace", "shares of the layers") as stage:
            return None if self.outer is None else self._block_traces(self.outer, pairs, stage)

    def _block_traces(self, hessian: Hessian, pairs: EigenpairsMeasurement | None, stage: _Stage) -> BlockTraces:
        """Exact where the structure of the layers tells the diagonal at this cost, else from probes."""
        diagonal = hessian.exact_diagonal(max_products=stage.allowed)
        if diagonal is not None and bool(torch.isfinite(diagonal).all()):
            sums = torch.zeros(len(self.blocks), dtype=torch.float64).index_add_(0, self.numbers, diagonal)
            whole = SpectralEstimate.of_known("trace", float(diagonal.sum()), len(diagonal))
            return BlockTraces(sums.numpy(), np.zeros(len(self.blocks)), whole)
        found = block_traces(
            hessian,
            self.numbers,
            known=pairs,
            relative_error=_RELATIVE_ERROR,
            max_products=max(2, stage.allowed),
            seed=self.seed,
        )
        stage.products = found.whole.num_products
        return found

    def _dimension(self) -> SpectralEstimate | None:
        with self._stage("dimension", "effective dimension") as stage:
            if self.outer is None:
                return None
            density = density_estimate(self.outer, seed=self.seed, **_density_size(stage.allowed))
            stage.products = density.num_products
        found = effective_dimension_estimate(density, 1 / self.problem.num_samples)
        return replace(found, provenance=None)

    def _tops(self, shares: Floats) -> dict[str, SharpnessMeasurement]:
        """The largest eigenvalue of every block, those with the most curvature first, while there is time."""
        found: dict[str, SharpnessMeasurement] = {}
        with self._stage("blocks", "largest eigenvalues of the layers") as stage:
            for place in np.argsort(-shares, kind="stable"):
                most = min(_PER_BLOCK, stage.allowed - stage.products)
                if most < min(4, _PER_BLOCK) or not self.budget.has_time():
                    break
                block = self.blocks[place]
                operator = PrincipalBlock(self.hessian, block.places)
                found[block.name] = largest_ritz_value(operator, most, seed=self.seed)
                stage.products += found[block.name].num_products
        return found

    def _factors(self) -> tuple[dict[str, FactorCurvature], str]:
        widest = max((max(self.problem.layout.shape(name), default=0) for name in self.problem.layout.names), default=0)
        if widest > _LARGEST_FACTOR:
            return {}, f"a layer is {widest:,} wide, and factors are decomposed up to {_LARGEST_FACTOR:,}"
        return measured_factors(self.problem, None, self.budget.has_time)

    @contextmanager
    def _stage(self, name: str, text: str) -> Iterator[_Stage]:
        self.say(text)
        start = time.perf_counter()
        stage = _Stage(self.budget.allowed(name))
        yield stage
        self.budget.spend(stage.products, time.perf_counter() - start)


@dataclass
class _Stage:
    allowed: int
    products: int = 0


def _outer_product(problem: Problem) -> tuple[Hessian | None, str]:
    """The outer-product Hessian, or why there is none: a loss that is known by its value alone has none."""
    try:
        hessian = outer_product_hessian(problem)
        hessian.matmat(torch.zeros(hessian.size, 1, dtype=hessian.dtype))
    except HessmapError as error:
        return None, str(error)
    return hessian, ""


def _density_size(allowed: int) -> dict[str, int]:
    """Probes and steps: few probes, each of them with as many steps as there are products for."""
    num_probes = _NUM_PROBES if allowed >= 8 * _NUM_PROBES else 2
    return {"num_probes": num_probes, "num_steps": max(2, allowed // num_probes)}


def _shares(traces: BlockTraces) -> tuple[Floats, Floats, float]:
    """The share of each block, its error, and the whole: what an estimate has below zero is its error."""
    values = traces.values.clip(min=0.0)
    whole = float(values.sum())
    return values / (whole or 1.0), traces.standard_errors / (whole or 1.0), whole


def _curve(found: DensityEstimate) -> DensityCurve:
    """The curve and the band of an estimate, without its Gauss rules."""
    names = ("grid", "density", "lower", "upper", "width", "confidence", "num_probes", "size")
    return DensityCurve(**{name: getattr(found, name) for name in names})
