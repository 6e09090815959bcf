"""Population loss, gradient and Hessian of two-layer networks, from the Gaussian moments of pairs of hidden units.

With z_m = w_m.x + b_m: f_o = sum_m W2_om g(z_m) + b2_o. Letters: k, m, p hidden units of the student, u, v units of
student and teacher, n, q inputs, o outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hessmap.errors import require
from hessmap.theory.teacher_student.gaussian_moments import GaussianMoments
from hessmap.theory.teacher_student.residual import Residual, units_of
from hessmap.theory.teacher_student.two_layer_hessians import functional_hessian, outer_product_hessian, slope_moments
from hessmap.theory.teacher_student.weights import Array, Weights


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
