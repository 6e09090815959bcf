"""The Frobenius norm from products with random vectors."""

from __future__ import annotations

import numpy as np

from hessmap.measurement.interval import CONFIDENCE, Wanted, interval, standard_error
from hessmap.measurement.matrices import Matrix
from hessmap.measurement.probes import BLOCK, Probed, orthonormal_range
from hessmap.results import SpectralEstimate

_SKETCH = 2 * BLOCK


def frobenius_norm_estimate(
    matrix: Matrix, *, relative_error: float = 0.01, max_products: int = 2000, seed: int = 0
) -> SpectralEstimate:
    """||A||_F, with probes until its standard error is ``relative_error`` of it.

    ||A||^2 = ||A Q||^2 + E ||A (I - Q Q^T) z||^2 for random signs z and the range Q of a sketch: one product a probe.
    The standard error of the root is that of the square over twice the root.

    >>> round(frobenius_norm_estimate(np.diag([3.0, -4.0])).value, 12)
    5.0
    """
    wanted = Wanted(relative_error, 0.0, max_products)
    wanted.check()
    probed = Probed(matrix, seed)
    if probed.size <= _SKETCH + BLOCK:
        columns = [
            probed.product(probed.identity(k, min(k + BLOCK, probed.size))) for k in range(0, probed.size, BLOCK)
        ]
        value = float(np.sqrt(sum(float(part.square().sum()) for part in columns)))
        return _record(probed, "exact", value, 0.0, 0, wanted)
    basis = orthonormal_range(probed.product(probed.signs(_SKETCH)))
    known = float(probed.product(basis).square().sum())
    values = np.zeros(0)
    while True:
        probes = probed.signs(BLOCK)
        probes = probes - basis @ (basis.T @ probes)
        values = np.append(values, probed.product(probes).square().sum(0).numpy())
        value = float(np.sqrt(known + values.mean()))
        error = standard_error(values) / (2 * value) if value else 0.0
        if wanted.is_met(value, error) or probed.num_products + BLOCK > wanted.max_products:
            return _record(probed, "hutch++", value, error, len(values), wanted)


def _record(probed: Probed, method: str, value: float, error: float, count: int, wanted: Wanted) -> SpectralEstimate:
    low, high = interval(value, error, count)
    scale = probed.scale
    return SpectralEstimate(
        quantity="frobenius_norm",
        value=scale * value,
        standard_error=scale * error,
        interval=(scale * max(0.0, low), scale * high),
        confidence=CONFIDENCE,
        method_error=0.0,
        asked=scale * wanted.standard_error(value),
        reached=method == "exact" or wanted.is_met(value, error),
        num_probes=count,
        num_products=probed.num_products,
        method=method,
        size=probed.size,
        seed=probed.seed,
        provenance=probed.provenance,
    )
