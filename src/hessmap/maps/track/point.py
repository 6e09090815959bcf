"""One point of a track: what is measured of a problem at one step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hessmap.curvature import Problem, functional_hessian, loss_hessian, outer_product_hessian
from hessmap.maps.track.settings import TrackSettings
from hessmap.measurement import gradient_overlap, top_eigenpairs, trace_estimate
from hessmap.results import EigenpairsMeasurement
from hessmap.results.tracks import TrackPoint

_HESSIANS = {"loss": loss_hessian, "outer_product": outer_product_hessian, "functional": functional_hessian}


class Measured(NamedTuple):
    """A point whose times and hash are still to be told, and the eigenvectors, from which the next one may start."""

    point: TrackPoint
    eigenvectors: NDArray[Any] | None


@torch.enable_grad()
def measured_point(
    problem: Problem,
    settings: TrackSettings,
    step: int,
    *,
    start: NDArray[Any] | None = None,
    learning_rate: float | None = None,
) -> Measured:
    """Risk, gradient, and what the settings ask for; ``start`` holds the eigenvectors of an earlier step."""
    hessian = _HESSIANS[settings.part](problem)
    gradient = problem.gradient().to("cpu", torch.float64)
    count = min(settings.count, problem.num_parameters)
    pairs, overlap, trace, num_products = None, None, None, 0
    if "eigenvalues" in settings.quantities:
        given: dict[str, Any] = {"tolerance": settings.tolerance, "max_products": settings.max_products}
        pairs = top_eigenpairs(hessian, count, start=start, seed=settings.seed, **given)
        num_products += pairs.num_products
    if "gradient_overlap" in settings.quantities:
        assert pairs is not None
        overlap = gradient_overlap(gradient, pairs)
    if "trace" in settings.quantities:
        wanted: dict[str, Any] = {"relative_error": settings.trace_error, "max_products": settings.max_probes}
        trace = trace_estimate(hessian, known=pairs, seed=settings.seed, **wanted)
        num_products += trace.num_products
    point = TrackPoint(
        step=step,
        risk=problem.risk(),
        gradient_norm=float(gradient.norm()),
        eigenvalues=np.zeros(0) if pairs is None else pairs.eigenvalues,
        residuals=np.zeros(0) if pairs is None else pairs.residuals,
        converged=pairs is None or pairs.converged,
        trace=None if trace is None else replace(trace, provenance=None),
        gradient_overlap=overlap,
        learning_rate=learning_rate,
        num_products=num_products,
        is_warm=start is not None,
        weights_hash="",
        seconds=0.0,
        cost=0.0,
        spent=0.0,
    )
    return Measured(point, _vectors(pairs))


def _vectors(pairs: EigenpairsMeasurement | None) -> NDArray[Any] | None:
    return None if pairs is None else pairs.eigenvectors
