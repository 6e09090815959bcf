"""How much of the curvature is negative: the part of the magnitudes of all eigenvalues that negative ones hold."""

from __future__ import annotations

import numpy as np

from hessmap.measurement.density_estimate import method_text
from hessmap.measurement.matrices import Floats
from hessmap.measurement.random_probes import CONFIDENCE, form_error, interval
from hessmap.records import DensityEstimate, SpectralEstimate


def negative_share(found: DensityEstimate) -> SpectralEstimate:
    """The sum of |h| over h < 0 over that of all |h|, by the Gauss rules of random probes or by all eigenvalues.

    Of a ratio of two means over probes the error is that of (negative - ratio * all) over the mean of all;
    ``method_error`` is the distance from the rules of half the steps. A zero matrix has no negative share.

    >>> from hessmap.measurement import density_estimate
    >>> round(negative_share(density_estimate(np.diag([3.0, 0.5, -0.5]), num_probes=4)).value, 12)
    0.125
    """
    negative, whole = _sums(found.nodes, found.weights)
    value = _share(float(negative.mean()), float(whole.mean()))
    half = _share(*(float(part.mean()) for part in _sums(found.half_nodes, found.half_weights)))
    magnitudes = np.abs(found.nodes) / (float(np.abs(found.nodes).max()) or 1.0)
    terms = magnitudes * ((found.nodes < 0) - value)
    values, squares, mean = ((found.weights * part).sum(-1) for part in (terms, np.square(terms), magnitudes))
    has_error = found.method != "exact" and bool(mean.any())
    error = form_error(values, float(squares.mean()), found.size) / float(mean.mean()) if has_error else 0.0
    method_error = 0.0 if found.is_exact.all() else abs(value - half)
    low, high = interval(value, error, found.num_probes, method_error)
    return SpectralEstimate(
        quantity="negative_share",
        value=value,
        standard_error=error,
        interval=(max(0.0, low), min(1.0, high)),
        confidence=CONFIDENCE,
        method_error=method_error,
        asked=None,
        reached=True,
        num_probes=found.num_probes,
        num_products=found.num_products,
        method=method_text(found),
        size=found.size,
        seed=found.seed,
        provenance=found.provenance,
    )


def _sums(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Of the magnitudes of the negative ones and of all, over the last axis."""
    whole = weights * np.abs(values)
    return np.where(values < 0, whole, 0.0).sum(-1), whole.sum(-1)


def _share(negative: float, whole: float) -> float:
    return negative / whole if whole > 0 else 0.0
