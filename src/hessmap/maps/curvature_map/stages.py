"""The measurements of a map without dense Hessians, one after the other, all within one budget of products."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from hessmap.curvature import Problem, outer_product_hessian
from hessmap.curvature.hessians import Hessian
from hessmap.curvature.memory import available_bytes
from hessmap.curvature.operator_blocks import PrincipalBlock
from hessmap.errors import HessmapError
from hessmap.maps.curvature_map.blocks import Block, block_numbers
from hessmap.maps.curvature_map.network import Progress
from hessmap.maps.curvature_map.plan import ProductBudget
from hessmap.measurement import density_estimate, top_eigenpairs
from hessmap.measurement.block_traces import BlockTraces, block_traces
from hessmap.measurement.eigenpair_cost import default_block, eigenpairs_bytes
from hessmap.measurement.largest_ritz_value import largest_ritz_value
from hessmap.measurement.matrices import Floats
from hessmap.measurement.spectral_sum_estimates import effective_dimension_estimate
from hessmap.results import DensityEstimate, EigenpairsMeasurement, SharpnessMeasurement, SpectralEstimate
from hessmap.results.whole_curvature import NUM_EIGENVALUES

_TOLERANCE, _ROUGH_TOLERANCE = 1e-3, 1e-2  # of the eigenpairs, relative to the norm
_RELATIVE_ERROR = 0.05  # of traces
_CAPS = {"eigenvalues": 160, "trace": 64, "density": 192, "outer trace": 64, "dimension": 96}
_PER_BLOCK = 16
_NUM_PROBES = 4  # of a density
_RESTART = 32  # products that a random restart may take beyond those that were allowed


def product_caps(num_blocks: int) -> dict[str, int]:
    """Products of every stage at most."""
    return {**_CAPS, "blocks": _PER_BLOCK * num_blocks}


class Stages:
    """What products tell of a problem; ``gap`` says why there is no outer-product Hessian where there is none."""

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

    def eigenvalues(self) -> tuple[EigenpairsMeasurement | None, SharpnessMeasurement]:
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

    def traces(self, pairs: EigenpairsMeasurement | None) -> BlockTraces:
        with self._stage("trace", "trace of the network and of its layers") as stage:
            return self._block_traces(self.hessian, pairs, stage)

    def density(self) -> DensityEstimate:
        with self._stage("density", "density of the eigenvalues") as stage:
            num_probes, num_steps = _density_size(stage.allowed)
            found = density_estimate(self.hessian, num_probes=num_probes, num_steps=num_steps, seed=self.seed)
            stage.products = found.num_products
        return found

    def outer_traces(self, pairs: EigenpairsMeasurement | None) -> BlockTraces | None:
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

    def dimension(self) -> SpectralEstimate | None:
        with self._stage("dimension", "effective dimension") as stage:
            if self.outer is None:
                return None
            num_probes, num_steps = _density_size(stage.allowed)
            density = density_estimate(self.outer, num_probes=num_probes, num_steps=num_steps, seed=self.seed)
            stage.products = density.num_products
        found = effective_dimension_estimate(density, 1 / self.problem.num_samples)
        return replace(found, provenance=None)

    def tops(self, shares: Floats) -> dict[str, SharpnessMeasurement]:
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

    @contextmanager
    def _stage(self, name: str, text: str) -> Iterator[_Stage]:
        self.say(text)
        start = time.perf_counter()
        stage = _Stage(self.budget.allowed_products(name))
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


def _density_size(allowed: int) -> tuple[int, int]:
    """Probes and steps: few probes, each of them with as many steps as there are products for."""
    num_probes = _NUM_PROBES if allowed >= 8 * _NUM_PROBES else 2
    return num_probes, max(2, allowed // num_probes)
