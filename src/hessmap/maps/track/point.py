"""One point of a track: what is measured of a problem at one step, and how well."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from hessmap.errors import require, require_name
from hessmap.hessians import functional_hessian, loss_hessian, outer_product_hessian
from hessmap.linalg import frobenius_norm
from hessmap.measurement import gradient_overlap, top_eigenpairs, trace_estimate
from hessmap.problem import Problem
from hessmap.records import PARTS, EigenpairsMeasurement, Part, TrackPoint

Quantity = Literal["eigenvalues", "gradient_overlap", "trace"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)


@dataclass(frozen=True)
class TrackSettings:
    """``count`` eigenvalues to ``tolerance`` of the norm, with ``max_products`` products at most; the trace to a
    standard error of ``trace_error`` of it, with ``max_probes`` probes at most.

    The same ``seed`` at every point gives the same probes: what differs between two points is the network.
    """

    quantities: tuple[Quantity, ...] = QUANTITIES
    part: Part = "loss"
    count: int = 5
    tolerance: float = 1e-2
    max_products: int = 500
    trace_error: float = 0.05
    max_probes: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        for quantity in self.quantities:
            require_name("quantities", quantity, QUANTITIES)
        require_name("part", self.part, PARTS)
        must = "the overlap of the gradient needs eigenvectors"
        has_vectors = "gradient_overlap" not in self.quantities or "eigenvalues" in self.quantities
        require(has_vectors, must, "'eigenvalues' is not among the quantities", "Add it")
        require(self.count >= 1, "count must be at least 1", f"got {self.count}")
        require(self.max_products >= 1, "max_products must be at least 1", f"got {self.max_products}")
        require(self.max_probes >= 2, "max_probes must be at least 2", f"got {self.max_probes}")
        require(0 < self.trace_error < 1, "trace_error must lie between 0 and 1", f"got {self.trace_error}")
        require(1e-15 <= self.tolerance < 1, "tolerance must lie between 1e-15 and 1", f"got {self.tolerance}")

    def as_dict(self) -> dict[str, Any]:
        """All but the part, which a track names beside them."""
        named = asdict(self)
        del named["part"]
        return {**named, "quantities": tuple(sorted(self.quantities))}


_HESSIANS = {"loss": loss_hessian, "outer_product": outer_product_hessian, "functional": functional_hessian}


class Measured(NamedTuple):
    """A point without its times and hash, and the eigenvectors, from which the next one may start."""

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
        gradient_norm=frobenius_norm(gradient.double().cpu().numpy()),
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
