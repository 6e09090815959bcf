"""Hessians of two-layer networks that learn a teacher: at any weights, at the teacher, with extra hidden units.

At the teacher, for one output and no bias, the Hessians are equations; rational weights give rational entries where
possible.

"A Teacher-Student Perspective on the Dynamics of Learning Near the Optimal Point", equations 8 to 18. Equations 12 and
13 are wrong as printed: the quadratic terms lack the factors W2_m W2_p and W2_m. For W1 = (1 2 / 3 -1), W2 = (1, -2),
epsilon = 1/2 the printed matrix is off by up to 135. `TeacherStudent` reaches the same matrices from Gaussian moments.

A student with more hidden units than its teacher can ignore the extra ones in four ways, with three ranks.

The student has the teacher's Nh generic neurons and ``num_extra`` more, placed so that its function is the teacher's.
The paper expects the optimum to be "zeroing out any extra neurons"; the rank depends on which weights are zeroed.

The difference of student and teacher is one network with the units of both, the teacher's with the opposite sign.

Both parts of the Hessian at any weights are built block by block in the order W1, b1, W2, b2.

H_o = E[J^T J] does not depend on the teacher. W1 W1: (W2^T W2)_mp E[g'(z_m) g'(z_p) x_n x_q]; W1 W2:
W2_om E[g(z_k) g'(z_m) x_n]; W2 W2: delta E[g(z_k) g(z_j)]; for b1 an input x that is always one, for b2 a unit g that
is always one. H_f = E[sum_o (f_o - f_teacher_o) d^2 f_o]: every hidden unit meets itself alone. Letters as in
`two_layers`.

Population loss, gradient and Hessian of two-layer networks, from the Gaussian moments of pairs of hidden units.

With z_m = w_m.x + b_m: f_o = sum_m W2_om g(z_m) + b2_o. Letters: k, m, p hidden units of the student, u, v units of
student and teacher, n, q inputs, o outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import comb, pi
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from hessmap.errors import InvalidInput, UnsupportedNetwork, require, require_name, sentence
from hessmap.networks import Activation, Polynomial, activation_of
from hessmap.records import EffectiveParameters
from hessmap.theory.data_ranks import Widths, checked_count, checked_widths
from hessmap.theory.fully_connected import linear
from hessmap.theory.polynomial import (
    Rank,
    deep_polynomial_rank,
    function_space_dim,
    independent_rank,
    rank_with_hidden_bias,
    rank_with_output_bias,
    rank_without_bias,
)
from hessmap.theory.teacher_student.moments import GaussianMoments, PairMoments, Units
from hessmap.theory.teacher_student.weights import Array, Weights, checked_weights

__all__ = [
    "error_function_hessian",
    "error_function_integral",
    "printed_quadratic_hessian",
    "quadratic_hessian",
    "tilted_covariance",
    "wider_student_rank",
]
Bias = Literal["none", "hidden", "output", "both"]
_REMEDY = "Use generic_rank(net, 'outer_product'), which is exact for every polynomial activation"


def quadratic_hessian(first: Any, second: Any, epsilon: Any) -> Array:
    """g(t) = t + epsilon t^2, equations 11 to 13 with the factors that the printed ones lack.

    Args:
        first: First weight W1.
        second: Second weight W2.
        epsilon: Coefficient epsilon of g(t) = t + epsilon t^2.

    Returns:
        The Hessian, W1 (row by row) before W2.

    Notes:
        W1_mn W1_pq: W2_m W2_p [delta_nq + 4 epsilon^2 (delta_nq G_mp + W_mn W_pq + W_mq W_pn)] W1_mn W2_k:  W2_m [W_kn
        + 2 epsilon^2 (W_mn G_kk + 2 W_kn G_mk)] W2_k W2_j:   G_kj + epsilon^2 (G_kk G_jj + 2 G_kj^2)
    """
    weights = _weights(first, second)
    inner, mixed, outer = _quadratic_terms(weights.layers[0], _square(epsilon, weights))
    factors = weights.layers[1][0]
    inner = factors[:, None, None, None] * factors[None, None, :, None] * (_identity_blocks(weights.layers[0]) + inner)
    mixed = factors[:, None, None] * (weights.layers[0].T[None, :, :] + mixed)
    return _block_matrix(inner, mixed, outer)


def printed_quadratic_hessian(first: Any, second: Any, epsilon: Any) -> Array:
    """Equations 11 to 13 as printed; right only where every W2_m is one.

    Args:
        first: First weight W1.
        second: Second weight W2.
        epsilon: Coefficient epsilon of g(t) = t + epsilon t^2.

    Returns:
        The matrix as printed.
    """
    weights = _weights(first, second)
    inner, mixed, outer = _quadratic_terms(weights.layers[0], _square(epsilon, weights))
    factors = weights.layers[1][0]
    inner = factors[:, None, None, None] * factors[None, None, :, None] * _identity_blocks(weights.layers[0]) + inner
    mixed = factors[:, None, None] * weights.layers[0].T[None, :, :] + mixed
    return _block_matrix(inner, mixed, outer)


def error_function_hessian(first: Any, second: Any) -> Array:
    """g(t) = erf(t / sqrt 2), equations 16 to 18, with d_mp = (1 + |W_m|^2)(1 + |W_p|^2) - (W_m.W_p)^2.

    Args:
        first: First weight W1.
        second: Second weight W2.

    Returns:
        The Hessian, W1 (row by row) before W2.

    Notes:
        W1_mn W1_pq: 2 W2_m W2_p / (pi sqrt(d_mp)) Sigma_nq, Sigma = (I + W_m W_m^T + W_p W_p^T)^-1 W1_mn W2_k:  2 W2_m
        / (pi sqrt(d_mk)) [W_kn - W_m.W_k / (1 + |W_m|^2) W_mn] W2_k W2_j:   (2 / pi) asin(W_k.W_j / sqrt((1 +
        |W_k|^2)(1 + |W_j|^2)))
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

    Args:
        row: The vector u.
        other: The vector v.

    Returns:
        Sigma.

    Example:
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

    Args:
        a: Factor a in erf(a x).
        b: Factor b > 0 in exp(-b^2 x^2).

    Returns:
        The integral.

    Notes:
        Appendix C in a simpler form; its derivative in a is (2 / sqrt(pi)) / (s sqrt(1 + s)), s = a^2 + b^2: the
        printed one lacks the factor 2 / sqrt(pi).
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


Extra = Literal["zero", "split", "output_zero", "input_zero"]


def wider_student_rank(inputs: int, hidden: int, degrees: Sequence[int], num_extra: int, extra: Extra = "zero") -> Rank:
    """The rank of the population Hessian of a wider student at the teacher's function; no bias, no constant term.

    Args:
        inputs: Number of inputs.
        hidden: Number of hidden units.
        degrees: Degrees of the monomials in the activation.
        num_extra: Units of the student beyond those of the teacher.
        extra: How the extra units are placed: "zero", "split", "output_zero" or "input_zero". Defaults to "zero".

    Returns:
        The rank with its kind and reason.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        With T the rank of the teacher (``rank_without_bias``), Ni inputs, Nh hidden, S the degrees and n the largest:
        "zero", both weights of an extra neuron are zero: T, as its derivatives vanish.
        "split", it repeats a neuron of the teacher and shares its output weight: T, as its derivatives repeat.
        "output_zero", it has generic input weights and no output weight: min(T + e, dim V), V all functions of the
            network. Proof: each brings one new function g(w.x), and these span V: a generic one is new until V is full.
        "input_zero", it has an output weight and no input weights: without a linear term in g nothing new, T; with one
        all
            linear functions come in: Ni + the rank without that term. Proof: modulo linear functions the derivatives
            are those of g without its linear term, whose degrees differ from one. One such neuron does what many do.

    Example:
        The last case has an exception: for cubics with (Ni, Nh) = (4, 6) the rank is 33 and not T + Ni = 34.

        >>> extras = ("zero", "split", "output_zero", "input_zero")
        >>> [wider_student_rank(3, 2, [1, 2], 1, extra).value for extra in extras]
        [7, 7, 8, 8]
    """
    require_name("extra", extra, get_args(Extra))
    count = checked_count("num_extra", num_extra)
    require(0 not in degrees, "a wider student must have an activation without constant term", "c_0 is not zero")
    teacher = rank_without_bias(inputs, hidden, degrees)
    if count == 0 or extra in ("zero", "split"):
        return teacher
    whole = sum(comb(inputs + k - 1, k) for k in set(degrees))
    if extra == "output_zero":
        return teacher._replace(value=min(teacher.value + count, whole))
    if 1 not in degrees:
        return teacher
    curved = [k for k in degrees if k > 1]
    if not curved:
        return teacher
    rest = rank_without_bias(inputs, hidden, curved)
    return rest._replace(value=rest.value + inputs)


def units_of(weights: Weights) -> Units:
    """The hidden units of a two-layer network."""
    return Units(weights.layers[0], weights.biases[0])


class Residual(NamedTuple):
    """f_o - f_teacher_o = sum_u outer_ou g(z_u) + constant_o; no constant where neither has an output bias."""

    units: Units
    outer: Array
    constant: Array | None

    @classmethod
    def of(cls, student: Weights, teacher: Weights) -> Residual:
        ours, theirs = units_of(student), units_of(teacher)
        has_bias = ours.offsets is not None or theirs.offsets is not None
        offsets = _units_of_both(ours.means, theirs.means, 1) if has_bias else None
        units = Units(_units_of_both(ours.rows, theirs.rows, 2), offsets)
        outer = np.swapaxes(_units_of_both(_columns(student), -_columns(teacher), 2), -1, -2)
        return cls(units, outer, _difference(student.biases[1], teacher.biases[1]))


def _columns(weights: Weights) -> Array:
    return np.swapaxes(weights.layers[1], -1, -2)


def _units_of_both(ours: Array, theirs: Array, num_axes: int) -> Array:
    """Units of both, one after the other; the batch of the one is the batch of the other."""
    batch = np.broadcast_shapes(ours.shape[:-num_axes], theirs.shape[:-num_axes])
    parts = [np.broadcast_to(part, (*batch, *part.shape[-num_axes:])) for part in (ours, theirs)]
    return np.concatenate(parts, axis=-num_axes)


def _difference(ours: Array | None, theirs: Array | None) -> Array | None:
    if ours is None and theirs is None:
        return None
    if ours is None:
        return None if theirs is None else -theirs
    return ours if theirs is None else ours - theirs


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


@dataclass(frozen=True)
class TwoLayers:
    """The formulas for one activation."""

    moments: GaussianMoments

    def loss(self, student: Weights, teacher: Weights) -> Any:
        """1/2 sum_o (V_o K V_o^T + 2 d_o V_o.k + d_o^2), V and d of the residual, K = E[g g], k = E[g] of its units."""
        residual = Residual.of(student, teacher)
        kernel = self.moments.pairs(residual.units, residual.units).constant(0, 0)
        total = np.einsum("...ou,...uv,...ov->...", residual.outer, kernel, residual.outer)
        if residual.constant is not None:
            means = np.einsum("...ou,...u->...o", residual.outer, self.moments.single(0, residual.units))
            total = total + np.einsum("...o,...o->...", residual.constant, 2 * means + residual.constant)
        return np.asarray(total)[()] / 2

    def gradient(self, student: Weights, teacher: Weights) -> Array:
        """E[(f - f_teacher) df], in the order W1, b1, W2, b2."""
        residual, units, outer = Residual.of(student, teacher), units_of(student), student.layers[1]
        pairs, constant = self.moments.pairs(residual.units, units), residual.constant
        slopes = slope_moments(self.moments, residual, units)
        parts = [np.einsum("...om,...omn->...mn", outer, slopes)]
        if units.offsets is not None:
            levels = residual.outer @ pairs.constant(0, 1)
            if constant is not None:
                levels = levels + constant[..., :, None] * self.moments.single(1, units)[..., None, :]
            parts.append(np.einsum("...om,...om->...m", outer, levels))
        heights = residual.outer @ pairs.constant(0, 0)
        if constant is not None:
            heights = heights + constant[..., :, None] * self.moments.single(0, units)[..., None, :]
        parts.append(heights)
        if student.biases[1] is not None:
            means = np.einsum("...ou,...u->...o", residual.outer, self.moments.single(0, residual.units))
            parts.append(means + constant)
        batch = parts[0].shape[:-2]
        return np.concatenate([part.reshape(*batch, -1) for part in parts], axis=-1)

    def outer_product_hessian(self, student: Weights) -> Array:
        _require_one(student)
        return outer_product_hessian(self.moments, student)

    def functional_hessian(self, student: Weights, teacher: Weights) -> Array:
        _require_one(student)
        _require_one(teacher)
        return functional_hessian(self.moments, student, teacher)


def _require_one(weights: Weights) -> None:
    must = "a Hessian must be of one network, not of a batch"
    require(not weights.batch, must, f"W1 has shape {weights.layers[0].shape}")


def effective_parameters(
    inputs: int,
    hidden: int | Iterable[int],
    activation: Activation | Sequence[float] = "identity",
    bias: Bias | bool = "none",
    *,
    outputs: int = 1,
    num_extra: int = 0,
    extra: Extra = "zero",
) -> EffectiveParameters:
    """The rank of the population Hessian where student and teacher agree: the effective number of parameters.

    Args:
        inputs: Number of inputs.
        hidden: The width of the hidden layer, or of several: linear networks, and two hidden layers of x^n or of a
            polynomial with all its terms.
        activation: A name, a ``Polynomial`` of any degree, or its coefficients (ascending). Defaults to "identity".
        bias: "none", "hidden" (every hidden layer), "output" or "both"; True and False are "both" and "none". Defaults
            to "none".
        outputs: Number of outputs; more than one for linear networks only. Defaults to 1.
        num_extra: Units of a wider student beside the teacher's, placed as ``extra`` specifies; for
            polynomials with one hidden layer, no bias and no constant term.
            Defaults to 0.
        extra: How the extra units are placed: "zero", "split", "output_zero" or "input_zero". Defaults to "zero".

    Returns:
        The rank with its kind and reference, the number of parameters and the dimension of the function space.

    Raises:
        InvalidInput: If an argument is out of range.
        UnsupportedNetwork: If no formula is known for the network.

    Notes:
        It is the dimension of the span of the derivatives of the network by its parameters, for generic weights. Which
        theorem or conjecture gave it is in ``kind`` and ``reference``; the formulas are in ``theory.polynomial`` and,
        for linear networks, in ``theory.fully_connected.linear``.

    Example:
        >>> from hessmap.networks import Polynomial
        >>> effective_parameters(5, 3, Polynomial((0, 1, 1))).value, effective_parameters(5, 3, "erf").value
        (15, 18)
        >>> effective_parameters(2, 3, Polynomial((0, 1, 1, 1)), bias="hidden").value
        10
        >>> effective_parameters(3, 2, Polynomial((0, 1, 1)), num_extra=1, extra="output_zero").value
        8
    """
    widths = _widths(inputs, hidden, outputs)
    if isinstance(activation, Sequence) and not isinstance(activation, str):
        activation = Polynomial(tuple(activation))
    applied, place = activation_of(activation), _bias(bias)
    in_hidden, in_output = place in ("hidden", "both"), place in ("output", "both")
    if num_extra:
        return _wider_student(widths, applied, in_hidden or in_output, num_extra, extra)
    rank, whole = _answer(widths, applied, in_hidden, in_output)
    weights = sum(before * after for before, after in pairwise(widths))
    num_parameters = weights + in_hidden * sum(widths[1:-1]) + in_output * widths[-1]
    return EffectiveParameters(rank.value, rank.kind, rank.reason, num_parameters, whole, rank.num_cases)


def _answer(widths: Widths, activation: Activation, in_hidden: bool, in_output: bool) -> tuple[Rank, int | None]:
    """The rank and the dimension of the function space."""
    if activation == "identity" or (isinstance(activation, Polynomial) and activation.degree == 1 and len(widths) == 3):
        return _linear_rank(widths, activation, in_hidden, in_output)
    if widths[-1] > 1:
        must = f"the effective parameters of several outputs are known for linear networks; '{activation}' needs one"
        raise UnsupportedNetwork(sentence(must, f"outputs is {widths[-1]}", _REMEDY))
    if len(widths) > 3:
        return deep_polynomial_rank(widths, activation, has_bias=in_hidden or in_output)
    ni, nh = widths[0], widths[1]
    if not isinstance(activation, Polynomial):
        return independent_rank(ni, nh, activation, in_hidden, in_output), None
    coefficients = activation.coefficients
    whole = function_space_dim(ni, coefficients, in_hidden, in_output)
    if in_hidden:
        return rank_with_hidden_bias(ni, nh, coefficients, in_output), whole
    degrees = [k for k, coefficient in enumerate(coefficients) if coefficient]
    return (rank_with_output_bias if in_output else rank_without_bias)(ni, nh, degrees), whole


def _wider_student(
    widths: Widths, activation: Activation, has_bias: bool, num_extra: int, extra: Extra
) -> EffectiveParameters:
    """A student with more hidden units than its teacher, at the teacher's function."""
    coefficients = (0.0, 1.0) if activation == "identity" else getattr(activation, "coefficients", None)
    if coefficients is None or len(widths) != 3 or widths[-1] != 1 or has_bias:
        must = "the effective parameters of wider students are known for polynomials, one hidden layer, no bias"
        got = f"got {'-'.join(map(str, widths))} '{activation}'{' with bias' if has_bias else ''}"
        raise UnsupportedNetwork(sentence(must, got, _REMEDY))
    degrees = [k for k, coefficient in enumerate(coefficients) if coefficient]
    inputs, hidden, _ = widths
    rank = wider_student_rank(inputs, hidden, degrees, num_extra, extra)
    num_parameters = (inputs + 1) * (hidden + num_extra)
    whole = function_space_dim(inputs, coefficients, False, False)
    return EffectiveParameters(rank.value, rank.kind, rank.reason, num_parameters, whole, rank.num_cases)


def _linear_rank(widths: Widths, activation: Activation, in_hidden: bool, in_output: bool) -> tuple[Rank, int]:
    """Deep linear networks are those of ``linear``; a constant in the activation adds the constants."""
    if isinstance(activation, Polynomial) and widths[-1] == 1:
        constants = in_hidden or in_output or activation.coefficients[0] != 0
        whole = widths[0] + constants
        return Rank(whole, "exact", "all affine functions, or all linear ones"), whole
    layers = range(1, len(widths))
    biased = [layer for layer in layers if (in_output if layer == len(widths) - 1 else in_hidden)]
    value = linear.outer_product_rank(widths, widths[0], biased_layers=biased)
    reference = "Singh, Bachmann & Hofmann 2021, Theorem 3; with bias research/docs/conjectures.md"
    return Rank(value, "exact", reference), widths[-1] * (widths[0] + bool(biased))


def _widths(inputs: int, hidden: int | Iterable[int], outputs: int) -> Widths:
    layers = tuple(hidden) if isinstance(hidden, Iterable) else (hidden,)
    checked_count("inputs", inputs, at_least=1)
    checked_count("outputs", outputs, at_least=1)
    for layer in layers:
        checked_count("hidden", layer, at_least=1)
    if not layers:
        raise InvalidInput(sentence("hidden must contain the width of at least one layer", "it is empty"))
    return checked_widths((inputs, *layers, outputs))


def _bias(given: Bias | bool) -> Bias:
    if isinstance(given, bool):
        return "both" if given else "none"
    require_name("bias", given, get_args(Bias))
    return given
