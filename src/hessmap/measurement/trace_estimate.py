"""The trace: from the structure of an operator where it has one, else from products with random vectors."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from hessmap.errors import require, unknown_name
from hessmap.measurement.exact_diagonal import SKETCH, diagonal_without_probes, rounding
from hessmap.measurement.interval import CONFIDENCE, Wanted, interval, standard_error
from hessmap.measurement.matrices import Floats, Matrix
from hessmap.measurement.probes import BLOCK, Probed, orthonormal_range
from hessmap.results import EigenpairsMeasurement, SpectralEstimate

TraceMethod = Literal["auto", "hutchinson", "hutch++", "xtrace", "exact"]


def trace_estimate(
    matrix: Matrix,
    *,
    relative_error: float = 0.01,
    absolute_error: float = 0.0,
    method: TraceMethod = "auto",
    max_products: int = 2000,
    known: EigenpairsMeasurement | None = None,
    seed: int = 0,
) -> SpectralEstimate:
    """The trace, with probes until its standard error is at most ``relative_error`` of it (or ``absolute_error``).

    "hutchinson": the mean of z^T A z over random signs z (Girard 1989, Hutchinson 1990). "hutch++": the trace in the
    range of a random sketch exactly, Hutchinson on what is left (Meyer, Musco, Musco & Woodruff 2021). "xtrace": every
    probe takes its turn at being the one left out of the sketch (Epperly, Tropp & Webber 2024). "exact": the diagonal,
    from the structure of the operator where that tells it (a Hessian whose parameters are weights and biases of linear
    and convolutional layers, a Kronecker product, a matrix that was written down), without a product; else by one
    product a dimension. "auto" is "exact" where that costs no more than the fewest products of "hutch++", else that.

    An exact trace has no standard error but that of its rounding, which is told for operators in float32.

    ``known`` holds eigenpairs of the same matrix, converged or not: Ritz values sum to the trace in the space of their
    vectors, so that "hutch++" takes them in the place of its sketch, without a product.

    >>> round(trace_estimate(np.diag([3.0, 1.0, -2.0])).value, 12)
    2.0
    """
    if method not in get_args(TraceMethod):
        raise unknown_name("method", method, get_args(TraceMethod))
    wanted = Wanted(relative_error, absolute_error, max_products)
    wanted.check()
    probed = Probed(matrix, seed)
    if known is not None:
        must = "known eigenpairs must be of the same matrix, and serve hutch++"
        require(known.size == probed.size, must, f"its size is {probed.size}, theirs {known.size}")
        require(method in ("auto", "hutch++"), must, f"method is {method!r}")
    fewest = BLOCK + (2 * SKETCH if known is None else 0)
    diagonal = diagonal_without_probes(matrix, probed, method, fewest)
    if diagonal is not None:
        value, error = (probed.scale * float(terms.sum()) for terms in (diagonal, rounding(matrix, diagonal)))
        return _record(probed, "exact", value, probed.size, error, wanted)
    method = "hutch++" if method == "auto" else method
    if method == "xtrace":
        inside, values = _left_out(probed, wanted)
    else:
        inside, values = _beside(probed, wanted, _sketch(probed, SKETCH if method == "hutch++" else 0, known))
    value = probed.scale * (inside + float(values.mean()))
    return _record(probed, method, value, len(values), probed.scale * standard_error(values), wanted)


class _Sketch(NamedTuple):
    """Orthonormal columns, and the trace of the matrix in their space."""

    basis: Tensor
    trace: float


def _sketch(probed: Probed, width: int, known: EigenpairsMeasurement | None) -> _Sketch:
    if known is not None:
        assert known.eigenvectors is not None
        return _Sketch(torch.from_numpy(known.eigenvectors), float(known.eigenvalues.sum()))
    basis = orthonormal_range(probed.product(probed.signs(min(width, probed.size))))
    trace = float((basis * probed.product(basis)).sum())
    return _Sketch(basis, probed.scale * trace)


def _beside(probed: Probed, wanted: Wanted, sketch: _Sketch) -> tuple[float, Floats]:
    """The trace inside the sketch, and the values of the probes outside of it, both in the unit of the products."""
    values = np.zeros(0)
    while True:
        probes = probed.signs(BLOCK)
        probes = probes - sketch.basis @ (sketch.basis.T @ probes)
        values = np.append(values, (probes * probed.product(probes)).sum(0).numpy())
        value, error = sketch.trace + probed.scale * values.mean(), probed.scale * standard_error(values)
        if wanted.is_met(value, error) or probed.num_products + BLOCK > wanted.max_products:
            return sketch.trace / probed.scale, values


def _left_out(probed: Probed, wanted: Wanted) -> tuple[float, Floats]:
    """One value per probe, from the sketch without it; wider sketches until the error asked for."""
    probes = images = basis = curved = torch.zeros(probed.size, 0, dtype=torch.float64)
    while True:
        width = min(BLOCK, probed.size - probes.shape[1])
        fresh = probed.normals(width)
        fresh = fresh * (probed.size**0.5 / fresh.norm(dim=0))
        probes, images = torch.cat([probes, fresh], 1), torch.cat([images, probed.product(fresh)], 1)
        basis = orthonormal_range(images)
        if basis.shape[1] < images.shape[1] or probes.shape[1] == probed.size:
            # The range is exhausted: all of the trace lies in it.
            return float((basis * probed.product(basis)).sum()), np.zeros(2)
        basis = torch.linalg.qr(images).Q
        curved = torch.cat([curved, probed.product(basis[:, curved.shape[1] :])], 1)
        values = _leave_one_out(probes, images, basis, curved)
        value, error = probed.scale * float(values.mean()), probed.scale * standard_error(values)
        if wanted.is_met(value, error) or probed.num_products + 2 * BLOCK > wanted.max_products:
            return 0.0, values


def _leave_one_out(probes: Tensor, images: Tensor, basis: Tensor, curved: Tensor) -> Floats:
    """Q_i, the sketch without probe i, spans Q without the direction s_i; with x_i the probe's part in Q_i,

    tr(Q_i^T A Q_i) = tr H - s_i^T H s_i,   (w_i - Q x_i)^T A (w_i - Q x_i) = w_i^T y_i - 2 x_i^T R_i + x_i^T H x_i,

    where H = Q^T A Q, Y = A W = Q R, and the second is scaled to what is left of the space.
    """
    size, count = probes.shape
    inner, triangle = basis.T @ curved, basis.T @ images
    turned = torch.linalg.inv(triangle).T
    turned = turned / turned.norm(dim=0)
    inside = basis.T @ probes
    inside = inside - turned * (turned * inside).sum(0)
    left = (probes * images).sum(0) - 2 * (inside * triangle).sum(0) + (inside * (inner @ inside)).sum(0)
    scale = (size - count + 1) / (size - inside.square().sum(0)).clamp(min=1e-12 * size)
    found: Floats = (inner.trace() - (turned * (inner @ turned)).sum(0) + scale * left).numpy()
    return found


def _record(probed: Probed, method: str, value: float, count: int, error: float, wanted: Wanted) -> SpectralEstimate:
    exact = method == "exact"
    return SpectralEstimate(
        quantity="trace",
        value=value,
        standard_error=error,
        interval=interval(value, error, count),
        confidence=CONFIDENCE,
        method_error=0.0,
        asked=wanted.standard_error(value),
        reached=exact or wanted.is_met(value, error),
        num_probes=0 if exact else count,
        num_products=probed.num_products,
        method=method,
        size=probed.size,
        seed=probed.seed,
        provenance=probed.provenance,
    )
