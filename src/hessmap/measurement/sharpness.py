"""Sharpness: the largest curvature of all directions."""

from __future__ import annotations

from math import inf

from hessmap.measurement.matrices import Matrix, reachable_tolerance
from hessmap.measurement.top_eigenpairs import top_eigenpairs
from hessmap.results import SharpnessMeasurement

_TOLERANCE = 1e-6


def sharpness(
    matrix: Matrix, *, tolerance: float | None = None, max_products: int | None = None, seed: int = 0
) -> SharpnessMeasurement:
    """The largest (signed) eigenvalue; gradient descent with a step above 2 / sharpness diverges along its vector
    (Cohen et al. 2021, "Gradient descent on neural networks typically occurs at the edge of stability").

    The default tolerance is 1e-6, and 1e-5 for an operator in float32.

    >>> import numpy as np
    >>> round(sharpness(np.diag([4.0, 1.0, -9.0])).largest_stable_step, 12)
    0.5
    """
    accuracy = reachable_tolerance(matrix, _TOLERANCE) if tolerance is None else tolerance
    found = top_eigenpairs(matrix, 1, tolerance=accuracy, max_products=max_products, seed=seed)
    value = float(found.eigenvalues[0])
    return SharpnessMeasurement(
        value=value,
        residual=float(found.residuals[0]),
        converged=found.converged,
        largest_stable_step=2 / value if value > 0 else inf,
        num_products=found.num_products,
        size=found.size,
        seed=seed,
        provenance=found.provenance,
    )
