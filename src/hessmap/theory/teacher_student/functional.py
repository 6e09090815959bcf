"""H_f = E[sum_o (f_o - f_teacher_o) d^2 f_o] of a two-layer network: every hidden unit meets itself alone."""

from __future__ import annotations

import numpy as np

from hessmap.theory.teacher_student.blocks import Blocks, assembled
from hessmap.theory.teacher_student.gaussian_moments import GaussianMoments, PairMoments, Units
from hessmap.theory.teacher_student.residual import Residual, units_of
from hessmap.theory.teacher_student.weights import Array, Weights


def functional_hessian(moments: GaussianMoments, student: Weights, teacher: Weights) -> Array:
    parts = _Parts(moments, student, Residual.of(student, teacher))
    blocks = {("W1", "W1"): parts.inner(), ("W1", "W2"): parts.mixed()}
    if student.biases[0] is not None:
        blocks |= parts.with_hidden_bias()
    return assembled(blocks, student)


class _Parts:
    """Letters of the module `two_layers`: k, m hidden units of the student, u units of both, n, q inputs, o outputs."""

    def __init__(self, moments: GaussianMoments, student: Weights, residual: Residual) -> None:
        self._units = units_of(student)
        self._outer = student.layers[1]
        self._residual = residual
        self._pairs: PairMoments = moments.pairs(residual.units, self._units)
        self._moments = moments

    def inner(self) -> Array:
        """(m, n, m, q): sum_u P_um E[g(z_u) g''(z_m) x_n x_q], P = V^T W2 with V of the residual, and its constant."""
        rows, others = self._units.rows, self._residual.units.rows
        identity, left, crossed, right = (self._weight() * part for part in self._pairs.second(0, 2))  # (u, m)
        block = np.einsum("um,un,uq->mnq", left, others, others)
        arm = np.einsum("um,un->mn", crossed, others)
        block = block + arm[:, :, None] * rows[:, None, :] + rows[:, :, None] * arm[:, None, :]
        level, squared = identity.sum(axis=0), right.sum(axis=0)
        if self._residual.constant is not None:
            level = level + self._constants() * self._single(2)
            squared = squared + self._constants() * self._single(4)
        block = block + squared[:, None, None] * rows[:, :, None] * rows[:, None, :]
        eye = np.eye(rows.shape[1], dtype=int) * np.ones_like(rows[:1, :1])
        return _on_diagonal(block + level[:, None, None] * eye)

    def mixed(self) -> Array:
        """(m, n, o, k) for k = m: E[(f_o - f_teacher_o) g'(z_m) x_n]."""
        return _last_on_diagonal(np.moveaxis(slope_moments(self._moments, self._residual, self._units), 0, -1))

    def with_hidden_bias(self) -> Blocks:
        rows = self._units.rows
        left, right = (self._weight() * part for part in self._pairs.first(0, 2))
        inner = np.einsum("um,un->mn", left, self._residual.units.rows) + right.sum(axis=0)[:, None] * rows
        level = (self._weight() * self._pairs.constant(0, 2)).sum(axis=0)
        mixed = np.einsum("ou,um->mo", self._residual.outer, self._pairs.constant(0, 1))
        if self._residual.constant is not None:
            inner = inner + (self._constants() * self._single(3))[:, None] * rows
            level = level + self._constants() * self._single(2)
            mixed = mixed + self._single(1)[:, None] * self._residual.constant
        return {
            ("W1", "b1"): _last_on_diagonal(inner),
            ("b1", "b1"): _last_on_diagonal(level),
            ("b1", "W2"): _last_on_diagonal(mixed),
        }

    def _weight(self) -> Array:
        return self._residual.outer.T @ self._outer

    def _constants(self) -> Array:
        return self._residual.constant @ self._outer

    def _single(self, order: int) -> Array:
        return self._moments.single(order, self._units)


def slope_moments(moments: GaussianMoments, residual: Residual, units: Units) -> Array:
    """(..., o, m, n): E[(f_o - f_teacher_o) g'(z_m) x_n]."""
    left, right = moments.pairs(residual.units, units).first(0, 1)  # of (u, m)
    value = np.einsum("...ou,...um,...un->...omn", residual.outer, left, residual.units.rows)
    pulls = np.einsum("...ou,...um->...om", residual.outer, right)
    if residual.constant is not None:
        pulls = pulls + residual.constant[..., :, None] * moments.single(2, units)[..., None, :]
    return np.asarray(value + pulls[..., :, :, None] * units.rows[..., None, :, :])


def _last_on_diagonal(values: Array) -> Array:
    """(m, ...) spread to (m, ..., k), zero unless k = m."""
    units = values.shape[0]
    spread = np.eye(units, dtype=int).reshape(units, *[1] * (values.ndim - 1), units)
    return np.asarray(values[..., None] * spread)


def _on_diagonal(values: Array) -> Array:
    """(m, n, q) spread to (m, n, p, q), zero unless p = m."""
    spread = np.eye(values.shape[0], dtype=int)[:, None, :, None]
    return np.asarray(values[:, :, None, :] * spread)
