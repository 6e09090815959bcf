"""The trace where every probe takes its turn at being the one left out of the sketch (XTrace)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hessmap.measurement.array_norms import Floats
from hessmap.measurement.random_probes import BLOCK, ErrorTarget, ProbedOperator, orthonormal_range, standard_error


class ProbedSketch(NamedTuple):
    """What the values of all probes are made of, with W the probes, Y = A W = Q R their images, and S^T R diagonal with
    columns of length one: s_i is orthogonal to every image but the i-th.

    ``own`` w_i^T A w_i, ``part`` Q^T W, ``triangle`` R, ``inner`` Q^T A Q, ``turned`` S.
    """

    size: int
    own: Tensor
    part: Tensor
    triangle: Tensor
    inner: Tensor
    turned: Tensor


def left_out_trace(operator: ProbedOperator, target: ErrorTarget) -> tuple[float, float, float, int]:
    """The trace, its standard error, the Frobenius norm of the matrix and the number of probes; wider sketches until
    the error asked for. Where the images of the probes span the range of the matrix, all of the trace lies there, and
    there is no error."""
    probes = images = basis = curved = torch.zeros(operator.size, 0, dtype=torch.float64)
    while True:
        width = min(BLOCK, operator.size - probes.shape[1])
        fresh = operator.normals(width)
        fresh = fresh * (operator.size**0.5 / fresh.norm(dim=0))
        probes, images = torch.cat([probes, fresh], 1), torch.cat([images, operator.product(fresh)], 1)
        basis = orthonormal_range(images)
        if basis.shape[1] < images.shape[1] or probes.shape[1] == operator.size:
            return operator.scale * float((basis * operator.product(basis)).sum()), 0.0, 0.0, probes.shape[1]
        basis = torch.linalg.qr(images).Q
        curved = torch.cat([curved, operator.product(basis[:, curved.shape[1] :])], 1)
        sketch = probed_sketch(probes, images, basis, curved)
        values = values_without_one(sketch)
        value = operator.scale * float(values.mean())
        error = operator.scale * shared_standard_error(values, values_without_two(sketch))
        norm = operator.scale * float(images.square().sum(0).mean()) ** 0.5
        if target.is_met(value, error, norm) or operator.num_products + 2 * BLOCK > target.max_products:
            return value, error, norm, probes.shape[1]


def probed_sketch(probes: Tensor, images: Tensor, basis: Tensor, curved: Tensor) -> ProbedSketch:
    """``basis`` is Q, ``curved`` its product with the matrix."""
    triangle = basis.T @ images
    turned = torch.linalg.inv(triangle).T
    turned = turned / turned.norm(dim=0)
    return ProbedSketch(len(probes), (probes * images).sum(0), basis.T @ probes, triangle, basis.T @ curved, turned)


def values_without_one(sketch: ProbedSketch) -> Floats:
    """Q_i, the sketch without probe i, spans Q without the direction s_i; with x_i the probe's part in Q_i,

    tr(Q_i^T A Q_i) = tr H - s_i^T H s_i,   (w_i - Q x_i)^T A (w_i - Q x_i) = w_i^T y_i - 2 x_i^T R_i + x_i^T H x_i,

    where H = Q^T A Q, Y = A W = Q R, and the second is scaled to what is left of the space.
    """
    size, own, part, triangle, inner, turned = sketch
    x = part - turned * (turned * part).sum(0)
    left = own - 2 * (x * triangle).sum(0) + (x * (inner @ x)).sum(0)
    scale = (size - len(own) + 1) / (size - x.square().sum(0)).clamp(min=1e-12 * size)
    found: Floats = (inner.trace() - (turned * (inner @ turned)).sum(0) + scale * left).numpy()
    return found


def values_without_two(sketch: ProbedSketch) -> Floats:
    """Row i, column j: the value of probe j by the sketch without j and i, as if probe i had never been drawn.

    Q_ij spans Q without s_j and u = (s_i - g s_j) / sqrt(1 - g^2), g = s_i . s_j: from x_j the part c u goes as well,
    c = u . x_j, and each term of ``values_without_one`` changes by what u takes from it. The diagonal means nothing.
    """
    size, own, part, triangle, inner, turned = sketch
    x = part - turned * (turned * part).sum(0)
    cosines, bent = turned.T @ turned, inner @ turned
    curvatures = turned.T @ bent  # s_i^T H s_j
    sines = (1 - cosines.square()).fill_diagonal_(1.0).clamp(min=1e-300)
    own_curvature = curvatures.diagonal()
    u_curvature = (own_curvature[:, None] - 2 * cosines * curvatures + cosines.square() * own_curvature) / sines
    root = sines.sqrt()
    c = (turned.T @ x) / root  # s_j . x_j = 0
    u_image = ((turned.T @ triangle) - cosines * (turned * triangle).sum(0)) / root  # u . R_j
    u_bent = (bent.T @ x - cosines * (bent * x).sum(0)) / root  # u . H x_j
    left = own - 2 * ((x * triangle).sum(0) - c * u_image) + (x * (inner @ x)).sum(0) - 2 * c * u_bent
    left = left + c.square() * u_curvature
    scale = (size - len(own) + 2) / (size - x.square().sum(0) + c.square()).clamp(min=1e-12 * size)
    found: Floats = (inner.trace() - own_curvature - u_curvature + scale * left).numpy()
    return found


def shared_standard_error(values: Floats, without: Floats) -> float:
    """Of the mean of the m values v_j, which share their probes, by the values v_ji that know nothing of probe i.

    With s^2 their sample variance and k the covariance of two of them, the variance of the mean is E s^2 / m + k.

    Given all other probes, v_j has the trace t as its mean, and so has v_ji. Write v_j - t = (v_ji - t) + d_ji in
    k = E (v_i - t)(v_j - t). Of the four products (v_ij - t)(v_ji - t) has the mean 0, since the two are independent
    given the other probes; (v_ij - t) d_ji as well, given all but probe j, and its mirror image. So k = E d_ij d_ji.

    The magnitudes |d_ij d_ji| are averaged here, which can only be more: where one direction stands far above the rest
    few pairs decide, with both signs.
    """
    count = len(values)
    changes = values - without
    np.fill_diagonal(changes, 0.0)
    shared = float(np.abs(changes * changes.T).sum()) / (count * (count - 1))
    return float(np.hypot(standard_error(values), shared**0.5))
