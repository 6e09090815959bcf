"""The largest eigenvalue of an operator from a given number of products: quick, with a residual, without a proof."""

from __future__ import annotations

import torch

from hessmap.curvature.lanczos import ParallelLanczos
from hessmap.errors import checked_count, checked_number
from hessmap.measurement.matrices import Matrix
from hessmap.measurement.random_probes import ProbedOperator
from hessmap.records import SharpnessMeasurement

_EACH = 4  # steps between two looks at the residual


def largest_ritz_value(
    matrix: Matrix, max_products: int = 24, *, tolerance: float = 1e-2, seed: int = 0
) -> SharpnessMeasurement:
    """The largest Ritz value of a Krylov space, which is never above the largest eigenvalue.

    An eigenvalue lies within ``residual`` of it, as a last product, with its vector, shows; ``converged`` says whether
    that is at most ``tolerance`` of its magnitude. Unlike ``sharpness`` it makes no random restart that would show a
    larger one which the start missed.

    >>> import numpy as np
    >>> round(largest_ritz_value(np.diag([4.0, 1.0, -9.0])).value, 12)
    4.0
    """
    operator = ProbedOperator(matrix, seed)
    max_products = checked_count("max_products", max_products, 1)
    most = min(operator.size, max(1, max_products - 1))
    tolerance = checked_number("tolerance", tolerance)
    process = ParallelLanczos(operator.product, operator.normals(1).T, most, "semi")
    value = residual = 0.0
    vector = torch.zeros(operator.size, 1, dtype=torch.float64)
    while process.dimension < most and process.width:
        process.expand()
        if process.dimension % _EACH == 0 or process.dimension == most or not process.width:
            values, vectors = torch.linalg.eigh(process.projection[0])
            coupling = process.coupling[0] @ vectors[:, -1] if process.width else vectors.new_zeros(1)
            value, residual = float(values[-1]), float(coupling.norm())
            vector = process.basis[0].T @ vectors[:, -1:]
            if residual <= tolerance * abs(value):
                break
    if max_products > 1:
        residual = float((operator.product(vector) - value * vector).norm())
    value, residual = operator.scale * value, operator.scale * residual
    is_close = residual <= tolerance * abs(value) and (tolerance * abs(value) > 0 or value == 0)
    return SharpnessMeasurement(
        value=value,
        residual=residual,
        converged=is_close,
        largest_stable_step=2 / value if value > 0 else float("inf"),
        num_products=operator.num_products,
        size=operator.size,
        seed=operator.seed,
        provenance=operator.provenance,
    )
