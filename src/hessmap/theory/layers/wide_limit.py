"""A wide two-layer ReLU network at initialisation on rectified Gaussian inputs: Theorems 4.1 and 4.2 of Wu et al. 2022.

W1 (n x d) and W2 (c x n) have independent entries N(0, 1/d) and N(0, 1/n); inputs are max(0, N(0, I_d)). M is the
output Hessian of the first layer, E[D W2^T A W2 D], D the activity pattern. What the theorems state holds: as n grows
M and the layer Hessian keep c - 1 large eigenvalues, and the space of M is that of

    M* = E[D' W2^T A W2 D'],  D' independent of A.

The closed form printed for M* does not: it takes every unit to be active half of the time (Lemma B.1: the sums of the
rows of W1 would vanish like 1/sqrt(n); they are N(0, 1) for every n). Given W1, unit i is active with probability q_i.
"""

from __future__ import annotations

from math import asin, pi

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.theory.layers.output_subspace import logit_subspace

Floats = NDArray[np.float64]


def activity(first_weight: ArrayLike) -> Floats:
    """q_i = Phi(sum_j W_ij / (sqrt(pi - 1) ||W_i||)): how often a unit is active on rectified Gaussian inputs.

    The input has mean 1/sqrt(2 pi) and variance (1 - 1/pi)/2 in every entry, and the sum over many entries is Gaussian.

    Reference: replaces the Bernoulli(1/2) of Wu et al. 2022, Lemmas B.1, B.9 and B.10.

    >>> activity([[1.0, -1.0]])
    array([0.5])
    """
    from scipy.special import ndtr  # here, because predictions must start fast

    rows = np.atleast_2d(np.asarray(first_weight, dtype=np.float64))
    return np.asarray(ndtr(rows.sum(axis=1) / (np.sqrt(pi - 1) * np.linalg.norm(rows, axis=1))))


def output_factor_limit(second_weight: ArrayLike, mean_output_hessian: ArrayLike, activities: ArrayLike) -> Floats:
    """M* = diag(q) K diag(q) + diag(q (1 - q) diag K), K = W2^T E[A] W2.

    Reference: corrects equation 8 of Wu et al. 2022, which is this with q = 1/2 throughout. Monte Carlo, c = 4, means
    of 3 seeds: top spaces of M and of this overlap by 0.989 (n = 16), 0.9992 (64), 0.9999 (1024); with the printed
    form by 0.82 to 0.84 at every n.

    >>> output_factor_limit([[1.0, -1.0]], [[1.0]], [0.5, 0.5])
    array([[ 0.5 , -0.25],
           [-0.25,  0.5 ]])
    """
    weight = np.asarray(second_weight, dtype=np.float64)
    q = np.asarray(activities, dtype=np.float64)
    middle = weight.T @ np.asarray(mean_output_hessian, dtype=np.float64) @ weight
    return np.asarray(q[:, None] * middle * q + np.diag(q * (1 - q) * np.diag(middle)))


def printed_output_factor_limit(second_weight: ArrayLike, mean_output_hessian: ArrayLike) -> Floats:
    """1/4 (K + diag K): equation 8 of Wu et al. 2022 as printed."""
    weight = np.asarray(second_weight, dtype=np.float64)
    return output_factor_limit(weight, mean_output_hessian, np.full(weight.shape[1], 0.5))


def limit_subspace(second_weight: ArrayLike, activities: ArrayLike) -> Floats:
    """diag(q) W2^T (1-perp): the top c - 1 space of M as n grows, orthonormal columns.

    Reference: Wu et al. 2022, Theorem 4.2; corrected by diag(q).
    """
    return logit_subspace(np.asarray(second_weight, dtype=np.float64) * np.asarray(activities, dtype=np.float64))


def mean_squared_activity_limit() -> float:
    """E[q^2] -> 1/4 + asin(1/pi) / (2 pi), since q = Phi(g / sqrt(pi - 1)), g ~ N(0, 1); E[q] = 1/2.

    >>> round(mean_squared_activity_limit(), 5)
    0.30156
    """
    return 0.25 + asin(1 / pi) / (2 * pi)


def printed_subspace_overlap_limit() -> float:
    """(1/4) / E[q^2]: what the printed space R(W2) without 1^T W2 overlaps with the true one as n grows, not 1.

    >>> round(printed_subspace_overlap_limit(), 5)
    0.82903
    """
    return 0.25 / mean_squared_activity_limit()
