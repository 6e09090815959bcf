"""The parts of degree 0 and 1 of the Hessian at the teacher: why some of its eigenvalues are large.

Expand the Jacobian J(x) of the outputs in Hermite polynomials of the inputs. Parts of different degree are orthogonal:

    H_o = E[J^T J] = J0^T J0 + J1^T J1 + (higher degrees),  J0 = E[J] = d E[f],  J1 = E[J x^T] = d E[f x^T],

every term positive semi-definite. J0 has one row for each output, J1 one for each output and input. By Weyl's
inequalities the k-th eigenvalue of H_o is at least that of a part, and the (1 + rank)-th of H_o is at most the largest
of all others: one eigenvalue away from the rest where a mean E[f] dominates (t + epsilon t^2), as many as inputs where
the linear part does (erf), and not as many as hidden units, as printed in Section 5 of "A Teacher-Student Perspective
on the Dynamics of Learning Near the Optimal Point".
"""

from __future__ import annotations

import numpy as np

from hessmap.errors import require
from hessmap.theory.teacher_student.gaussian_moments import GaussianMoments
from hessmap.theory.teacher_student.two_layers import units_of
from hessmap.theory.teacher_student.weights import Array, Weights


def hermite_jacobian(moments: GaussianMoments, weights: Weights, degree: int) -> Array:
    """J0 (outputs, parameters) or J1 (outputs * inputs, parameters) of a two-layer network."""
    require(degree in (0, 1), "the degree must be 0 or 1", f"got {degree}")
    require(not weights.batch, "a Jacobian must be of one network, not of a batch", "W1 has leading axes")
    return _mean(moments, weights) if degree == 0 else _linear(moments, weights)


def _mean(moments: GaussianMoments, weights: Weights) -> Array:
    """d E[f_o]: W2_om E[g''] W_mn, W2_om E[g'], delta E[g], delta."""
    units, outer = units_of(weights), weights.layers[1]
    value, slope, curvature = (moments.single(order, units) for order in range(3))
    eye = np.eye(len(outer), dtype=int)
    parts = [outer[:, :, None] * (curvature[:, None] * units.rows)[None]]
    if units.offsets is not None:
        parts.append(outer * slope)
    parts.append(eye[:, :, None] * value)
    if weights.biases[1] is not None:
        parts.append(eye * np.ones_like(outer[:1, :1]))
    return np.concatenate([part.reshape(len(outer), -1) for part in parts], axis=1)


def _linear(moments: GaussianMoments, weights: Weights) -> Array:
    """d E[f_o x_q]: W2_om (E[g'] delta_nq + E[g'''] W_mn W_mq), W2_om E[g''] W_mq, delta E[g'] W_kq, 0."""
    units, outer = units_of(weights), weights.layers[1]
    rows = units.rows
    slope, curvature, third = (moments.single(order, units) for order in (1, 2, 3))
    eye = np.eye(rows.shape[1], dtype=int)
    inner = slope[:, None, None] * eye + third[:, None, None] * rows[:, :, None] * rows[:, None, :]  # (m, n, q)
    parts = [outer[:, None, :, None] * inner.transpose(2, 0, 1)[None]]  # (o, q, m, n)
    if units.offsets is not None:
        parts.append(outer[:, None, :] * (curvature[:, None] * rows).T[None])
    outputs = np.eye(len(outer), dtype=int)
    parts.append(outputs[:, None, :, None] * (slope[:, None] * rows).T[None, :, None, :])
    if weights.biases[1] is not None:
        parts.append(0 * outputs[:, None, :] * rows.T[None, :, :1])
    return np.concatenate([part.reshape(len(outer) * rows.shape[1], -1) for part in parts], axis=1)
