"""The Hessians at the teacher as equations, for one output and no bias; rational weights stay rational where they can.

"A Teacher-Student Perspective on the Dynamics of Learning Near the Optimal Point", equations 8 to 18. Equations 12 and
13 are wrong as printed: the quadratic terms lack the factors W2_m W2_p and W2_m. For W1 = (1 2 / 3 -1), W2 = (1, -2),
epsilon = 1/2 the printed matrix is off by up to 135. `TeacherStudent` reaches the same matrices from Gaussian moments.
"""

from __future__ import annotations

from fractions import Fraction
from math import pi
from typing import Any

import numpy as np

from hessmap.theory.teacher_student.weights import Array, Weights, checked_weights


def quadratic_hessian(first: Any, second: Any, epsilon: Any) -> Array:
    """g(t) = t + epsilon t^2, equations 11 to 13 with the factors that the printed ones lack.

    W1_mn W1_pq: W2_m W2_p [delta_nq + 4 epsilon^2 (delta_nq G_mp + W_mn W_pq + W_mq W_pn)]
    W1_mn W2_k:  W2_m [W_kn + 2 epsilon^2 (W_mn G_kk + 2 W_kn G_mk)]
    W2_k W2_j:   G_kj + epsilon^2 (G_kk G_jj + 2 G_kj^2)
    """
    weights = _weights(first, second)
    inner, mixed, outer = _quadratic_terms(weights.layers[0], _square(epsilon, weights))
    factors = weights.layers[1][0]
    inner = factors[:, None, None, None] * factors[None, None, :, None] * (_identity_blocks(weights.layers[0]) + inner)
    mixed = factors[:, None, None] * (weights.layers[0].T[None, :, :] + mixed)
    return _block_matrix(inner, mixed, outer)


def printed_quadratic_hessian(first: Any, second: Any, epsilon: Any) -> Array:
    """Equations 11 to 13 as printed; right only where every W2_m is one."""
    weights = _weights(first, second)
    inner, mixed, outer = _quadratic_terms(weights.layers[0], _square(epsilon, weights))
    factors = weights.layers[1][0]
    inner = factors[:, None, None, None] * factors[None, None, :, None] * _identity_blocks(weights.layers[0]) + inner
    mixed = factors[:, None, None] * weights.layers[0].T[None, :, :] + mixed
    return _block_matrix(inner, mixed, outer)


def error_function_hessian(first: Any, second: Any) -> Array:
    """g(t) = erf(t / sqrt 2), equations 16 to 18, with d_mp = (1 + |W_m|^2)(1 + |W_p|^2) - (W_m.W_p)^2.

    W1_mn W1_pq: 2 W2_m W2_p / (pi sqrt(d_mp)) Sigma_nq, Sigma = (I + W_m W_m^T + W_p W_p^T)^-1
    W1_mn W2_k:  2 W2_m / (pi sqrt(d_mk)) [W_kn - W_m.W_k / (1 + |W_m|^2) W_mn]
    W2_k W2_j:   (2 / pi) asin(W_k.W_j / sqrt((1 + |W_k|^2)(1 + |W_j|^2)))
    """
    weights = _weights(first, second).in_floats()
    rows, factors = weights.layers[0], weights.layers[1][0]
    gram, plus = rows @ rows.T, 1 + (rows * rows).sum(axis=1)
    scale = 2 * factors[:, None] / (pi * np.sqrt(plus[:, None] * plus[None, :] - gram**2))  # (m, p) and (m, k)
    sigma = np.array([[tilted_covariance(row, other) for other in rows] for row in rows])  # (m, p, n, q)
    inner = (scale * factors[None, :])[:, :, None, None] * sigma
    pull = gram / plus[:, None]  # (m, k)
    mixed = scale[:, None, :] * (rows.T[None, :, :] - pull[:, None, :] * rows[:, :, None])
    outer = 2 / pi * np.arcsin(gram / np.sqrt(plus[:, None] * plus[None, :]))
    return _block_matrix(inner.transpose(0, 2, 1, 3), mixed, outer)


def tilted_covariance(row: Any, other: Any) -> Array:
    """Sigma = (I + u u^T + v v^T)^-1 = I - (b u u^T + a v v^T - c (u v^T + v u^T)) / (a b - c^2).

    a = 1 + u.u, b = 1 + v.v, c = u.v.

    >>> tilted_covariance([1.0], [1.0])
    array([[0.33333333]])
    """
    u, v = np.asarray(row, dtype=float), np.asarray(other, dtype=float)
    a, b, c = 1 + u @ u, 1 + v @ v, u @ v
    crossed = np.outer(u, v)
    removed = b * np.outer(u, u) + a * np.outer(v, v) - c * (crossed + crossed.T)
    return np.asarray(np.eye(len(u)) - removed / (a * b - c**2))


def error_function_integral(a: float, b: float) -> float:
    """The integral of erf(x) erf(a x) exp(-b^2 x^2) over the line, b > 0.

    Appendix C in a simpler form; its derivative in a is (2 / sqrt(pi)) / (s sqrt(1 + s)), s = a^2 + b^2: the printed
    one lacks the factor 2 / sqrt(pi).
    """
    return float(2 / (np.sqrt(pi) * b) * np.arctan(a / (b * np.sqrt(a**2 + b**2 + 1))))


def _weights(first: Any, second: Any) -> Weights:
    return checked_weights((first, second), (None, None), (None, None, 1), (False, False))


def _square(epsilon: Any, weights: Weights) -> Any:
    return Fraction(epsilon) ** 2 if weights.is_exact else float(epsilon) ** 2


def _identity_blocks(rows: Array) -> Array:
    """delta_nq as (1, n, 1, q)."""
    return np.asarray(np.eye(rows.shape[1], dtype=int)[None, :, None, :] * np.ones_like(rows[:1, :1])[0, 0])


def _quadratic_terms(rows: Array, square: Any) -> tuple[Array, Array, Array]:
    """4 epsilon^2 F2 as (m, n, p, q), 2 epsilon^2 F3 as (m, n, k) and G + epsilon^2 F1 as (k, j)."""
    gram = rows @ rows.T
    norms = gram.diagonal()
    together = rows[:, :, None, None] * rows[None, None, :, :]  # W_mn W_pq
    crossed = together.transpose(0, 3, 2, 1)  # W_mq W_pn
    second = _identity_blocks(rows) * gram[:, None, :, None] + together + crossed
    third = rows[:, :, None] * norms[None, None, :] + 2 * rows.T[None, :, :] * gram[:, None, :]
    first = norms[:, None] * norms[None, :] + 2 * gram * gram
    return 4 * square * second, 2 * square * third, gram + square * first


def _block_matrix(inner: Array, mixed: Array, outer: Array) -> Array:
    """W1 before W2; blocks (m, n, p, q), (m, n, k), (k, j)."""
    size, hidden = inner.shape[0] * inner.shape[1], outer.shape[0]
    corner, side = inner.reshape(size, size), mixed.reshape(size, hidden)
    return np.concatenate([np.concatenate([corner, side], axis=1), np.concatenate([side.T, outer], axis=1)], axis=0)
