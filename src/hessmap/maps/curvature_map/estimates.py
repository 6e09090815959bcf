"""A network whose Hessians cannot be formed: its layers and its spectrum from products alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hessmap.curvature import Problem, loss_hessian, outer_product_hessian
from hessmap.maps.curvature_map.layers import layer_places, layer_shape
from hessmap.maps.curvature_map.network import Progress, description
from hessmap.measurement import density_estimate, diagonal_estimate, top_eigenpairs, trace_estimate
from hessmap.results import DiagonalEstimate, EigenpairsMeasurement, SpectralEstimate
from hessmap.results.map_estimates import CurvatureEstimates, LayerEstimate

_NUM_EIGENVALUES = 10
_TOLERANCE = 1e-3  # of the eigenpairs, relative to the norm
_RELATIVE_ERROR = 0.05  # of trace and diagonal
_MAX_PRODUCTS = 200
_NUM_PROBES, _NUM_STEPS = 4, 48  # of the density


@torch.enable_grad()
def curvature_estimates(problem: Problem, reason: str, title: str, progress: Progress, seed: int) -> CurvatureEstimates:
    """Sharpness, trace, density and the layers of a problem; ``progress`` gets in words what is done next."""
    hessian = loss_hessian(problem)
    count = min(_NUM_EIGENVALUES, problem.num_parameters)
    progress(f"no dense Hessian ({reason}); the {count} largest eigenvalues from products")
    pairs = top_eigenpairs(hessian, count, tolerance=_TOLERANCE, seed=seed)
    progress("trace")
    budget: dict[str, Any] = {"relative_error": _RELATIVE_ERROR, "max_products": _MAX_PRODUCTS}
    trace = trace_estimate(hessian, known=pairs, seed=seed, **budget)
    progress("density of the eigenvalues")
    density = density_estimate(hessian, num_probes=_NUM_PROBES, num_steps=_NUM_STEPS, seed=seed)
    progress("curvature of the layers")
    diagonal = diagonal_estimate(outer_product_hessian(problem), seed=seed, **budget)
    layers = tuple(_layers(problem, pairs, diagonal))
    name = description(problem.model)
    return CurvatureEstimates(
        title=title or f"{name}, {problem.loss.name} loss, {problem.num_samples:,} samples",
        description=name,
        loss=problem.loss.name,
        num_samples=problem.num_samples,
        num_parameters=problem.num_parameters,
        risk=problem.risk(),
        gradient_norm=float(problem.gradient().norm()),
        eigenpairs=replace(pairs, eigenvectors=None, provenance=None),
        trace=replace(trace, provenance=None),
        density=replace(density, provenance=None),
        layers=layers,
        verdicts=tuple(_verdicts(pairs, trace, layers)),
        reason=reason,
        notes=problem.notes,
        provenance=problem.provenance,
    )


def _layers(problem: Problem, pairs: EigenpairsMeasurement, diagonal: DiagonalEstimate) -> Iterator[LayerEstimate]:
    """Entries of the diagonal are not negative; what an estimate has below zero is its error."""
    assert pairs.eigenvectors is not None
    direction = np.square(pairs.eigenvectors[:, 0])
    values = diagonal.values.clip(min=0.0)
    whole = float(values.sum())
    for name, places in layer_places(problem.layout).items():
        error = float(np.linalg.norm(diagonal.standard_errors[places]))
        yield LayerEstimate(
            name=name,
            shape=layer_shape(problem.layout, name),
            num_parameters=len(places),
            curvature_share=float(values[places].sum()) / whole if whole else 0.0,
            share_error=error / whole if whole else 0.0,
            direction_share=float(direction[places].sum() / direction.sum()),
        )


def _verdicts(
    pairs: EigenpairsMeasurement, trace: SpectralEstimate, layers: tuple[LayerEstimate, ...]
) -> Iterator[str]:
    found = "" if pairs.converged else " at least, because the eigenvalues have not converged"
    yield f"The largest eigenvalue of H_L, the sharpness, is {pairs.eigenvalues[0]:.4g}{found}."
    doubt = "exactly" if trace.method == "exact" else f"± {trace.standard_error:.1g} (one standard error)"
    yield f"The trace of H_L is {trace.value:.4g} {doubt}."
    if len(layers) > 1:
        heaviest = max(layers, key=lambda layer: layer.curvature_share)
        sharpest = max(layers, key=lambda layer: layer.direction_share)
        error = f" (± {heaviest.share_error:.0%})" if heaviest.share_error >= 0.005 else ""
        yield (
            f"Layer {heaviest.name} holds {heaviest.curvature_share:.0%}{error} of the curvature; the sharpest "
            f"direction lies {sharpest.direction_share:.0%} in layer {sharpest.name}."
        )
