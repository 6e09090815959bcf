"""What student and teacher differ by: one network of the units of both, the teacher's with the opposite sign."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hessmap.theory.teacher_student.gaussian_moments import Units
from hessmap.theory.teacher_student.weights import Array, Weights


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
