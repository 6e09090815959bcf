"""The representation cost of linear networks: the smallest squared norm of the weights that give a map, and balance.

Reference: Jacot 2023, "Implicit bias of large depth networks: a notion of rank for nonlinear functions", section 1 and
Proposition 3; the closed form is that of Dai, Karzand & Srebro 2021.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require

Floats = NDArray[np.float64]


def linear_representation_cost(matrix: ArrayLike, num_layers: int) -> float:
    """min ||W_L||^2 + .. + ||W_1||^2 over all W_L .. W_1 = A: L times the sum of s^(2/L), s the singular values of A.

    Kind of truth: theorem, for hidden widths of at least the rank of A. Divided by L it tends to the rank of A as the
    depth L grows. Singular values below n eps of the largest count as zeros: their powers would not be small.

    >>> round(linear_representation_cost([[3.0, 0.0], [0.0, 1.0]], num_layers=2), 12)    # twice the nuclear norm
    8.0
    """
    return num_layers * schatten_quasi_norm(_singular_values(matrix), num_layers)


def schatten_quasi_norm(singular_values: ArrayLike, num_layers: int) -> float:
    """The sum of s^(2/L), the power 2/L of the Schatten-2/L quasi-norm; zeros count nothing.

    >>> schatten_quasi_norm([4.0, 0.0], num_layers=4)
    2.0
    """
    require(num_layers >= 1, "num_layers must be at least 1", f"got {num_layers}")
    values = np.asarray(singular_values, dtype=np.float64)
    smallest = float(values.min(initial=0.0))
    require(smallest >= 0, "singular values must not be negative", f"the smallest is {smallest}")
    with np.errstate(over="ignore"):  # beyond the range of numbers it is infinite
        return float((values[values > 0] ** (2.0 / num_layers)).sum())


def balanced_factors(matrix: ArrayLike, num_layers: int) -> list[Floats]:
    """W_1, .., W_L with W_L .. W_1 = A that attain the cost: S^(1/L) V^T, then S^(1/L), at last U S^(1/L).

    Directions of singular value zero (below n eps of the largest) are left out, so the hidden width is the rank of A;
    a matrix of zeros gets hidden width 1.

    >>> factors = balanced_factors([[0.0, 8.0]], num_layers=3)
    >>> [float(np.square(factor).sum().round(9)) for factor in factors]
    [4.0, 4.0, 4.0]
    """
    require(num_layers >= 1, "num_layers must be at least 1", f"got {num_layers}")
    array = _matrix(matrix)
    if num_layers == 1:
        return [array.copy()]
    left, values, right = np.linalg.svd(array, full_matrices=False)
    rank = max(1, int((values > _floor(array, values)).sum()))
    roots = values[:rank] ** (1.0 / num_layers)
    middle = [np.diag(roots) for _ in range(num_layers - 2)]
    return [roots[:, None] * right[:rank], *middle, left[:, :rank] * roots]


def balance_defect_prediction(defect: ArrayLike, ridge: float, time: float) -> Floats:
    """D(t) = D(0) e^(-4 ridge t) under the gradient flow of C(f_W) + ridge ||W||^2, D = ||W_(l+1)||^2 - ||W_l||^2 -
    ||b_l||^2, of layers or of single units.

    Exact for homogeneous activations and any C: scaling what enters a unit by c and what leaves it by 1/c leaves the
    function alone, so the gradient of C does not move D, and the ridge takes 2 ridge W from each weight. At a local
    minimum D is therefore 0. Reference: Jacot 2023, Proposition 12 (the minimum); the law in time is stronger.

    >>> balance_defect_prediction(2.0, ridge=0.25, time=1.0).round(6).item()
    0.735759
    """
    require(ridge >= 0, "ridge must not be negative", f"got {ridge}")
    require(time >= 0, "time must not be negative", f"got {time}")
    return np.asarray(np.asarray(defect, dtype=np.float64) * np.exp(-4 * ridge * time))


def _singular_values(matrix: ArrayLike) -> Floats:
    """Those above rounding."""
    array = _matrix(matrix)
    values = np.asarray(np.linalg.svd(array, compute_uv=False), dtype=np.float64)
    return values[values > _floor(array, values)]


def _floor(matrix: Floats, singular_values: Floats) -> float:
    return float(max(matrix.shape) * np.finfo(np.float64).eps * singular_values.max(initial=0.0))


def _matrix(matrix: ArrayLike) -> Floats:
    array = np.asarray(matrix, dtype=np.float64)
    require(array.ndim == 2 and array.size > 0, "a linear map must be a matrix", f"got shape {array.shape}")
    require(bool(np.isfinite(array).all()), "a linear map must be finite", "there is NaN or inf")
    return array
