"""The diagonal without a random probe: from what an operator knows of itself, or by one product a dimension."""

from __future__ import annotations

import torch
from torch import Tensor

from hessmap.curvature.operator import SymmetricOperator
from hessmap.measurement.matrices import Matrix, is_narrow
from hessmap.measurement.probes import BLOCK, Probed

SKETCH = 2 * BLOCK
_NARROW_ERROR = 1e-6  # of sums of squares in float32, relative


def diagonal_without_probes(matrix: Matrix, probed: Probed, method: str, fewest: int) -> Tensor | None:
    """The diagonal in the unit of the products if the method is "exact", or "auto" and probes would cost as much.

    ``fewest`` is the number of products without which probes give no answer.
    """
    if method not in ("auto", "exact") and probed.size:
        return None
    if isinstance(matrix, SymmetricOperator):
        known = matrix.exact_diagonal(max_products=fewest if method == "auto" else None)
        if known is not None and bool(torch.isfinite(known).all()):
            return known
    if method == "auto" and probed.size > SKETCH + BLOCK:
        return None
    return _by_products(probed)


def rounding(matrix: Matrix, diagonal: Tensor) -> Tensor:
    """What the number format of the operator may have cost every entry; nothing worth a word in float64."""
    return (_NARROW_ERROR if is_narrow(matrix) else 0.0) * diagonal.abs()


def _by_products(probed: Probed) -> Tensor:
    parts = [torch.zeros(0, dtype=torch.float64)]
    for start in range(0, probed.size, BLOCK):
        stop = min(start + BLOCK, probed.size)
        # A part that comes before the first product that is not zero, which sets the unit, is zero in any unit.
        parts.append(probed.product(probed.identity(start, stop))[start:stop].diagonal())
    return torch.cat(parts)
