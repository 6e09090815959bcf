"""Both parts of the Hessian of a two-layer network, block by block in the order W1, b1, W2, b2.

H_o = E[J^T J] does not depend on the teacher. W1 W1: (W2^T W2)_mp E[g'(z_m) g'(z_p) x_n x_q]; W1 W2:
W2_om E[g(z_k) g'(z_m) x_n]; W2 W2: delta E[g(z_k) g(z_j)]; for b1 an input x that is always one, for b2 a unit g that
is always one. H_f = E[sum_o (f_o - f_teacher_o) d^2 f_o]: every hidden unit meets itself alone. Letters as in
`two_layers`.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from hessmap.theory.teacher_student.gaussian_moments import GaussianMoments, PairMoments, Units
from hessmap.theory.teacher_student.residual import Residual, units_of
from hessmap.theory.teacher_student.weights import Array, Weights

NAMES = ("W1", "b1", "W2", "b2")
Blocks = dict[tuple[str, str], Array]


def parameter_sizes(weights: Weights) -> dict[str, int]:
    """The sizes of the parameters that a two-layer network has, by name."""
    named = dict(zip(NAMES, _in_order(weights), strict=True))
    return {name: array.size for name, array in named.items() if array is not None}


def _in_order(weights: Weights) -> tuple[Array | None, ...]:
    return (weights.layers[0], weights.biases[0], weights.layers[1], weights.biases[1])


def symmetric_matrix(blocks: Blocks, weights: Weights) -> Array:
    """The symmetric matrix with these blocks on and above the diagonal; a block that is not given is zero."""
    sizes = parameter_sizes(weights)
    stops = np.cumsum(list(sizes.values()))
    places = {name: slice(stop - size, stop) for (name, size), stop in zip(sizes.items(), stops, strict=True)}
    dtype = object if weights.is_exact else float
    matrix = np.full((stops[-1], stops[-1]), Fraction(0) if weights.is_exact else 0.0, dtype=dtype)
    for (row, column), block in blocks.items():
        flat = block.reshape(sizes[row], sizes[column])
        matrix[places[row], places[column]] = flat
        if row != column:
            matrix[places[column], places[row]] = flat.T
    return matrix


def outer_product_hessian(moments: GaussianMoments, student: Weights) -> Array:
    units, outer = units_of(student), student.layers[1]
    pairs = moments.pairs(units, units)
    blocks = {("W1", "W1"): _inner(pairs, units, outer), **_mixed_blocks(pairs, units, outer)}
    if units.offsets is not None:
        blocks |= _with_hidden_bias(pairs, units, outer)
    if student.biases[1] is not None:
        blocks |= _with_output_bias(moments, units, outer)
    return symmetric_matrix(blocks, student)


def _inner(pairs: PairMoments, units: Units, outer: Array) -> Array:
    """(m, n, p, q): G_mp (identity I + left_left w_m w_m + left_right (w_m w_p + w_p w_m) + right_right w_p w_p)_nq."""
    rows, products = units.rows, outer.T @ outer
    identity, left, crossed, right = (products * part for part in pairs.second(1, 1))
    by_left = rows[:, None, :] * left[:, :, None] + rows[None, :, :] * crossed[:, :, None]  # (m, p, n)
    by_right = rows[:, None, :] * crossed[:, :, None]  # (m, p, n), meets w_p
    by_right = by_right + rows[None, :, :] * right[:, :, None]
    block = by_left.transpose(0, 2, 1)[:, :, :, None] * rows[:, None, None, :]
    block += by_right.transpose(0, 2, 1)[:, :, :, None] * rows[None, None, :, :]
    for place in range(rows.shape[1]):
        block[:, place, :, place] += identity
    return np.asarray(block)


def _mixed_blocks(pairs: PairMoments, units: Units, outer: Array) -> Blocks:
    """W1 W2 as (m, n, o, k) and W2 W2 as (o, k, o', j)."""
    left, right = pairs.first(0, 1)  # of (k, m)
    moment = left.T[:, None, :] * units.rows.T[None, :, :] + right.T[:, None, :] * units.rows[:, :, None]  # (m, n, k)
    return {
        ("W1", "W2"): outer.T[:, None, :, None] * moment[:, :, None, :],
        ("W2", "W2"): _identity(outer)[:, None, :, None] * pairs.constant(0, 0)[None, :, None, :],
    }


def _with_hidden_bias(pairs: PairMoments, units: Units, outer: Array) -> Blocks:
    products = outer.T @ outer
    left, right = (products * part for part in pairs.first(1, 1))  # of (m, p)
    return {
        ("W1", "b1"): units.rows[:, :, None] * left[:, None, :] + (right[:, :, None] * units.rows).transpose(0, 2, 1),
        ("b1", "b1"): products * pairs.constant(1, 1),
        ("b1", "W2"): outer.T[:, :, None] * pairs.constant(0, 1).T[:, None, :],
    }


def _with_output_bias(moments: GaussianMoments, units: Units, outer: Array) -> Blocks:
    slopes = moments.single(2, units)
    blocks = {
        ("W1", "b2"): (slopes[:, None] * units.rows)[:, :, None] * outer.T[:, None, :],
        ("W2", "b2"): _identity(outer)[:, None, :] * moments.single(0, units)[None, :, None],
        ("b2", "b2"): _identity(outer),
    }
    if units.offsets is not None:
        blocks["b1", "b2"] = moments.single(1, units)[:, None] * outer.T
    return blocks


def _identity(outer: Array) -> Array:
    return np.eye(outer.shape[0], dtype=int) * np.ones_like(outer[:1, :1])


def functional_hessian(moments: GaussianMoments, student: Weights, teacher: Weights) -> Array:
    parts = _Parts(moments, student, Residual.of(student, teacher))
    blocks = {("W1", "W1"): parts.inner(), ("W1", "W2"): parts.mixed()}
    if student.biases[0] is not None:
        blocks |= parts.with_hidden_bias()
    return symmetric_matrix(blocks, student)


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
    along_rows = np.einsum("...ou,...um->...om", residual.outer, right)
    if residual.constant is not None:
        along_rows = along_rows + residual.constant[..., :, None] * moments.single(2, units)[..., None, :]
    return np.asarray(value + along_rows[..., :, :, None] * units.rows[..., None, :, :])


def _last_on_diagonal(values: Array) -> Array:
    """(m, ...) spread to (m, ..., k), zero unless k = m."""
    units = values.shape[0]
    spread = np.eye(units, dtype=int).reshape(units, *[1] * (values.ndim - 1), units)
    return np.asarray(values[..., None] * spread)


def _on_diagonal(values: Array) -> Array:
    """(m, n, q) spread to (m, n, p, q), zero unless p = m."""
    spread = np.eye(values.shape[0], dtype=int)[:, None, :, None]
    return np.asarray(values[:, :, None, :] * spread)
