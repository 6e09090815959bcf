"""H_o = E[J^T J] of a two-layer network, block by block. It does not depend on the teacher.

W1 W1: (W2^T W2)_mp E[g'(z_m) g'(z_p) x_n x_q]; W1 W2: W2_om E[g(z_k) g'(z_m) x_n]; W2 W2: delta E[g(z_k) g(z_j)]; for
b1 an input x that is always one, for b2 a unit g that is always one. Letters as in `two_layers`.
"""

from __future__ import annotations

import numpy as np

from hessmap.theory.teacher_student.blocks import Blocks, assembled
from hessmap.theory.teacher_student.gaussian_moments import GaussianMoments, PairMoments, Units
from hessmap.theory.teacher_student.residual import units_of
from hessmap.theory.teacher_student.weights import Array, Weights


def outer_product_hessian(moments: GaussianMoments, student: Weights) -> Array:
    units, outer = units_of(student), student.layers[1]
    pairs = moments.pairs(units, units)
    blocks = {("W1", "W1"): _inner(pairs, units, outer), **_mixed(pairs, units, outer)}
    if units.offsets is not None:
        blocks |= _with_hidden_bias(pairs, units, outer)
    if student.biases[1] is not None:
        blocks |= _with_output_bias(moments, units, outer)
    return assembled(blocks, student)


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


def _mixed(pairs: PairMoments, units: Units, outer: Array) -> Blocks:
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
