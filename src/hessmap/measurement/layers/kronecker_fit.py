"""The Kronecker product nearest to a layer Hessian, in the Frobenius norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hessmap.curvature.layers import KroneckerProduct, LayerHessian

_MAX_STEPS = 500


@dataclass(frozen=True, eq=False)
class BestKronecker:
    """The product, its squared distance relative to ||H||_F^2 is 1 - (sigma / ||H||_F)^2; whether the steps settled."""

    product: KroneckerProduct
    sigma: float
    num_steps: int
    converged: bool


def best_kronecker_product(hessian: LayerHessian, tolerance: float = 1e-12) -> BestKronecker:
    """B (x) C with the smallest ||H - B (x) C||_F: the leading singular pair of the rearranged H (Van Loan & Pitsianis
    1993), by the power method on contractions of H, started from the second moment of the inputs.

    Both factors are symmetric, and positive semi-definite where H is.
    """
    inputs = hessian.factors["uncorrelated_patches"].input_factor
    right = inputs / inputs.norm()
    sigma, converged, step = 0.0, False, 0
    left = torch.zeros(hessian.weight_shape[0], hessian.weight_shape[0], dtype=torch.float64)
    for step in range(1, _MAX_STEPS + 1):  # noqa: B007 - the count is reported
        left = _unit(hessian.contracted_inputs(right))
        contracted = hessian.contracted_outputs(left)
        before, sigma = sigma, float(contracted.norm())
        change = float((contracted / (sigma or 1.0) - right).norm())
        right = _unit(contracted)
        # The value settles twice as fast as the factors: both are asked.
        converged = abs(sigma - before) <= tolerance * sigma and change <= tolerance**0.5
        if converged:
            break
    return BestKronecker(KroneckerProduct(sigma * left, right, hessian.layout), sigma, step, converged)


def _unit(matrix: Tensor) -> Tensor:
    symmetric = (matrix + matrix.T) / 2
    size = float(symmetric.norm())
    return symmetric / size if size else symmetric
