"""Linear systems with a shifted operator from products alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import require
from hessmap.measurement.krylov_basis import KrylovBasis
from hessmap.measurement.matrices import Matrix, float_array, reachable_tolerance
from hessmap.measurement.probes import Probed
from hessmap.results import ShiftedSolution

_TOLERANCE = 1e-8


def krylov_solve(
    matrix: Matrix,
    right_side: Tensor | NDArray[Any],
    shift: float = 0.0,
    *,
    tolerance: float | None = None,
    max_basis: int = 200,
    max_products: int = 5000,
    seed: int = 0,
) -> ShiftedSolution:
    """Solve (H + shift I) x = b for the columns of b together, definite or not.

    The residual is made smallest over a block Krylov space with full orthogonalisation (block MINRES, all vectors
    kept); when ``max_basis`` vectors are full it starts again from what is left. Residuals are those of products made
    for it, not of the recurrence. A singular system has no answer: the smallest residual is returned, not converged.
    The default tolerance is 1e-8, and 1e-5 for an operator in float32.

    >>> krylov_solve(np.diag([1.0, 3.0]), np.array([2.0, 2.0]), shift=1.0).solution.round(12)
    array([1. , 0.5])
    """
    require(bool(np.isfinite(shift)), "shift must be finite", f"got {shift}")
    tolerance = reachable_tolerance(matrix, _TOLERANCE) if tolerance is None else tolerance
    require(0 < tolerance < 1, "tolerance must lie between 0 and 1", f"got {tolerance}")
    probed = Probed(matrix, seed)
    given = float_array(right_side, "a right-hand side")
    must = f"the right-hand side must have {probed.size} rows"
    require(given.ndim in (1, 2) and len(given) == probed.size, must, f"got shape {given.shape}")
    right = torch.from_numpy(given.reshape(probed.size, -1).copy())
    sizes = right.abs().amax(0) if probed.size else right.new_ones(right.shape[1])
    sizes = torch.where(sizes > 0, sizes, 1.0)
    scaled = right / sizes
    norms = scaled.norm(dim=0)
    solution, residual, num_restarts = torch.zeros_like(scaled), scaled.clone(), 0
    while True:
        relative = torch.where(norms > 0, residual.norm(dim=0) / torch.where(norms > 0, norms, 1.0), 0.0)
        open_columns = (relative > tolerance).nonzero()[:, 0]
        if not len(open_columns) or probed.num_products >= max_products:
            break
        step = _minimised(probed, residual[:, open_columns], shift, max_basis, 0.1 * tolerance * norms[open_columns])
        solution[:, open_columns] += step
        before = float(relative[open_columns].max())
        residual = scaled - _shifted(probed, solution, shift)
        num_restarts += 1
        after = residual.norm(dim=0)[open_columns] / norms[open_columns]
        if float(after.max()) > 0.9 * before:
            relative = torch.where(norms > 0, residual.norm(dim=0) / torch.where(norms > 0, norms, 1.0), 0.0)
            break  # nothing more to be had
    return ShiftedSolution(
        solution=(solution * sizes).numpy().reshape(given.shape),
        shift=float(shift),
        relative_residuals=relative.numpy(),
        tolerance=tolerance,
        converged=bool((relative <= tolerance).all()),
        num_products=probed.num_products,
        num_restarts=max(0, num_restarts - 1),
        size=probed.size,
        provenance=probed.provenance,
    )


def _shifted(probed: Probed, vectors: Tensor, shift: float) -> Tensor:
    images = probed.product(vectors)
    return images * probed.scale + shift * vectors


def _minimised(probed: Probed, right: Tensor, shift: float, max_basis: int, wanted: Tensor) -> Tensor:
    """Q y with the smallest ||(A + shift) Q y - b||: A Q = Q T + B C makes it a small least-squares problem."""
    capacity = min(probed.size, max(max_basis, 2 * right.shape[1]))
    basis = KrylovBasis(lambda block: _shifted(probed, block, shift), probed.size, capacity, probed.generator)
    # Restarted residuals are small: directions are kept relative to their own size.
    basis.start((right / right.norm(dim=0)).T, min(right.shape[1], probed.size))
    while True:
        basis.expand()
        inside = basis.basis @ right
        stacked = torch.cat([basis.projected, basis.coupling])
        target = torch.cat([inside, inside.new_zeros(len(basis.coupling), right.shape[1])])
        small = torch.linalg.lstsq(stacked, target, driver="gelsd").solution
        left = (stacked @ small - target).norm(dim=0)
        is_full = len(basis.block) == 0 or basis.dimension + len(basis.block) > capacity
        if bool((left <= wanted).all()) or is_full:
            return basis.combined(small) / (basis.unit or 1.0)
