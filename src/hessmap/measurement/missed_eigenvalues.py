"""Whether an eigenvalue beyond those that were found has been missed: a random vector and its images tell.

Let u be a unit eigenvector, of value z, of an operator on m dimensions, and q a random unit vector. The orthonormal
polynomials p_0, .., p_j of q, which j steps of Lanczos make known, have u . p_i(A) q = p_i(z) (u . q), and the vectors
p_i(A) q are orthonormal, so that

    (u . q)^2 (p_0(z)^2 + .. + p_j(z)^2) <= 1.

Outside of all Ritz values the sum grows: what it is at a point holds for every z beyond. So either no eigenvalue lies
beyond the point, or u . q is below a number that the process tells, and for a random q that is as improbable as the
number is small (van Dorsselaer, Hochstenbach & van der Vorst 2000, "Computing probabilistic bounds for extreme
eigenvalues of symmetric matrices with the Lanczos method").
"""

from __future__ import annotations

from math import exp, lgamma, pi
from typing import NamedTuple

import torch
from torch import Tensor

from hessmap.curvature.lanczos import BlockLanczos
from hessmap.measurement.wanted_eigenpairs import WantedPairs

NUM_STORED = 48  # vectors of a probe, at least
_BLIND = 1e-3  # the probability that a probe shows nothing although there is something, at most
_BEYOND_DOUBT = 1e200
_COUPLED = 0.25  # of the slack: how far what is left of the basis may lift the values of a probe


class Probe(NamedTuple):
    """What a random vector showed: True if nothing lies beyond, False if something may, None if it ran out of room
    before; the Ritz values with it, and the coordinates of each Ritz vector (rows) along the new directions."""

    verdict: bool | None
    values: Tensor
    coordinates: Tensor
    directions: Tensor


def deflate(process: BlockLanczos, wanted: WantedPairs, values: Tensor, vectors: Tensor, residuals: Tensor) -> None:
    """Keep the wanted Ritz vectors, which come first, and others that hardly couple to what is beside the basis.

    A Ritz pair of value a and residual r lifts an eigenvalue near z, of the operator on the rest of the space, by
    r^2 / (z - a) at most: a Schur complement. All of them together stay below a part of the slack.
    """
    chosen = wanted.wanted_places(values)
    slack = wanted.slack(values[chosen], process.norm)
    is_other = torch.ones(len(values), dtype=torch.bool)
    is_other[chosen] = False
    others = is_other.nonzero()[:, 0]
    points = [point for point in wanted.bounds(values[chosen], slack) if point is not None]
    distances = torch.stack([(values[others] - point).abs() for point in points]).amin(0)
    lifts, order = (residuals[others].square() / distances).sort()
    kept = torch.cat([chosen, others[order[lifts.cumsum(0) <= _COUPLED * slack]]])
    process.restrict(values[kept], vectors[:, kept])


def probe(process: BlockLanczos, wanted: WantedPairs, known: Tensor, last_product: int) -> Probe:
    """Let a random vector and its images join the basis, one by one, until they show whether a value was missed.

    The process stays as it was; what the probe added to its basis is of no further use but to be joined to it.
    """
    before, slack = process.state, wanted.slack(known, process.norm)
    old, points = before.dimension, wanted.bounds(known, (1 - _COUPLED) * slack)
    process.start(before.block[:0], 1)
    verdict = None
    while verdict is None and 0 < process.width <= process.room and process.product.num_products < last_product:
        process.expand()
        if wanted.have_changed(known, torch.linalg.eigvalsh(process.projection), slack):
            verdict = False
        elif process.dimension == process.size:
            verdict = True
        else:
            verdict = _is_clear(process, old, points)
    values, vectors, _ = process.ritz()
    directions = process.basis[old:]
    process.state = before
    return Probe(verdict, values, vectors[old:].T, directions)


def _is_clear(process: BlockLanczos, old: int, points: tuple[float | None, float | None]) -> bool | None:
    """Whether no eigenvalue beside the first ``old`` vectors lies outside of the points: True, False, or not yet."""
    low, high = points
    projection, num_dimensions = process.projection[old:, old:], process.size - old
    own = torch.linalg.eigvalsh(projection)
    if (high is not None and float(own[-1]) > high) or (low is not None and float(own[0]) < low):
        return False
    if num_dimensions < 3:
        return None
    beside = torch.cat([projection.diagonal(-1), process.coupling[:, -1:].norm(dim=0)])
    limit = least_overlap(num_dimensions, _BLIND)
    bounds = [overlap_bound(projection.diagonal(), beside, point) for point in points if point is not None]
    return True if max(bounds) < limit else None


def least_overlap(num_dimensions: int, probability: float) -> float:
    """What a coordinate of a random unit vector stays below, in magnitude, with at most this probability.

    >>> round(least_overlap(3, 0.5), 12)  # uniform between -1 and 1
    0.5
    """
    half = num_dimensions / 2
    return float(probability * pi**0.5 / 2 * exp(lgamma(half - 0.5) - lgamma(half)))


def overlap_bound(diagonal: Tensor, beside: Tensor, point: float) -> float:
    """What |u . q| cannot exceed for an eigenvalue at the point or beyond; 0 where the space of q has ended.

    The coefficients a and b of Lanczos, the last b that of the next vector; the point is outside of the Ritz values.
    """
    before, now, total, coupling = 0.0, 1.0, 1.0, 0.0
    for a, b in zip(diagonal.tolist(), beside.tolist(), strict=True):
        if not b or total > _BEYOND_DOUBT:
            return 0.0
        before, now, coupling = now, ((point - a) * now - coupling * before) / b, b
        total += now * now
    return float(total**-0.5)
