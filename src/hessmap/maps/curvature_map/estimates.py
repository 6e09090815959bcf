"""A network whose Hessians are not formed: the whole, its layers and its spectrum from products, within a time."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch

from hessmap.hessians import Hessian, loss_hessian
from hessmap.linalg import available_bytes, frobenius_norm, readable_bytes
from hessmap.maps.curvature_map.blocks import blocks_of
from hessmap.maps.curvature_map.layers import curvature_spread, direction_share, measured_factors
from hessmap.maps.curvature_map.network import Progress, description
from hessmap.maps.curvature_map.plan import optional_part
from hessmap.maps.curvature_map.stages import Stages, fast_hessian, product_budget, resolved_density
from hessmap.measurement import BlockTraces, Floats, eigenpairs_bytes, negative_share
from hessmap.problem import Problem
from hessmap.records import (
    NUM_EIGENVALUES,
    CurvatureSpread,
    FactorCurvature,
    LayerCurvature,
    MapWork,
    NetworkCurvature,
    WholeCurvature,
)

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
    fast = fast_hessian(hessian, seed)
    each = seconds_per_product(fast)
    left = None if seconds is None else seconds - (time.perf_counter() - start)
    budget = product_budget(len(blocks), left, each)
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
    spread = None if stages.outer is None else curvature_spread(layers, outer_trace)  # of H_o
    return _record(stages, layers, whole, spread, factors_gap, reason)


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
        prediction_gap="no Hessian was formed whose rank could be compared with one",
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
