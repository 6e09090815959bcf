"""Population loss, gradient and Hessian of deep linear networks: all lives in the end-to-end matrix.

With a one appended to the inputs, layer l is M_l = [[W_l, b_l], [0, 1]] and f(x) is M_L ... M_1 (x, 1) without its last
entry. E[(x, 1)(x, 1)^T] = I, so that L = 1/2 || P - P_teacher ||^2 for the end-to-end matrices P (outputs, inputs + 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from hessmap.errors import require
from hessmap.theory.teacher_student.weights import Array, Weights


class DeepLinear:
    """The formulas for linear networks of any depth."""

    def loss(self, student: Weights, teacher: Weights) -> Any:
        difference = _Factors(student).end_to_end - _Factors(teacher).end_to_end
        return np.asarray((difference * difference).sum(axis=(-2, -1)))[()] / 2

    def gradient(self, student: Weights, teacher: Weights) -> Array:
        """A_l^T R B_l^T of every layer, A_l all that follows it, B_l all before, R = P - P_teacher."""
        factors = _Factors(student)
        residual = factors.end_to_end - _Factors(teacher).end_to_end
        parts = []
        for place in range(factors.depth):
            moment = _transposed(factors.after(place)) @ residual @ _transposed(factors.before(place))
            parts.append(factors.parameters(moment, place))
        return np.concatenate(parts, axis=-1)

    def outer_product_hessian(self, student: Weights) -> Array:
        """J^T J with the columns J_(l, i, j) = A_l[:, i] B_l[j, :]."""
        require(not student.batch, "a Hessian must be of one network, not of a batch", "W1 has leading axes")
        factors = _Factors(student)
        columns = []
        for place in range(factors.depth):
            after, before = factors.after(place), factors.before(place)
            products = after[:, None, :, None] * before.T[None, :, None, :]  # (o, x, i, j)
            columns.append(factors.parameters(products.reshape(-1, *products.shape[2:]), place))
        jacobian = np.concatenate(columns, axis=-1)
        return np.asarray(jacobian.T @ jacobian)

    def functional_hessian(self, student: Weights, teacher: Weights) -> Array:
        """Layers k > l: (A_k^T R B_l^T)_ij' (M_(k-1) ... M_(l+1))_ji'; a layer with itself: zero."""
        require(not student.batch, "a Hessian must be of one network, not of a batch", "W1 has leading axes")
        factors = _Factors(student)
        residual = factors.end_to_end - _Factors(teacher).end_to_end
        rows = []
        for later in range(factors.depth):
            row = [self._block(factors, residual, later, earlier) for earlier in range(later)]
            own = factors.num_parameters(later)
            rest = sum(factors.num_parameters(place) for place in range(later, factors.depth))
            rows.append(np.concatenate([*row, np.zeros((own, rest), dtype=int) * residual[:1, :1]], axis=1))
        lower = np.concatenate(rows, axis=0)
        return np.asarray(lower + lower.T)

    def _block(self, factors: _Factors, residual: Array, later: int, earlier: int) -> Array:
        outside = factors.after(later).T @ residual @ factors.before(earlier).T  # (i, j')
        between = factors.between(earlier, later)  # (j, i')
        block = outside[:, None, None, :] * between[None, :, :, None]  # (i, j, i', j')
        inner = factors.parameters(block, earlier)  # (i, j, parameters of the earlier layer)
        return np.swapaxes(factors.parameters(np.moveaxis(inner, -1, 0), later), 0, 1)


@dataclass(frozen=True)
class _Factors:
    """The extended matrices of the layers and their products."""

    weights: Weights

    @property
    def depth(self) -> int:
        return len(self.weights.layers)

    @property
    def end_to_end(self) -> Array:
        return reduce(lambda done, layer: layer @ done, map(self._extended_layer, range(self.depth)))[..., :-1, :]

    def before(self, place: int) -> Array:
        """(inputs of the layer + 1, inputs + 1): the product of all layers before this one."""
        width = self.weights.layers[0].shape[-1] + 1
        return self._product(range(place), width)

    def after(self, place: int) -> Array:
        """(outputs, outputs of the layer + 1): the product of all layers after this one."""
        width = self.weights.layers[place].shape[-2] + 1
        return self._product(range(place + 1, self.depth), width)[..., :-1, :]

    def between(self, earlier: int, later: int) -> Array:
        return self._product(range(earlier + 1, later), self.weights.layers[earlier].shape[-2] + 1)

    def num_parameters(self, place: int) -> int:
        layer, bias = self.weights.layers[place], self.weights.biases[place]
        return int(layer.shape[-1] * layer.shape[-2] + (0 if bias is None else layer.shape[-2]))

    def parameters(self, values: Array, place: int) -> Array:
        """(..., i, j) over the extended matrix of a layer as (..., parameters): weights row by row, then bias."""
        batch = values.shape[:-2]
        weight = values[..., :-1, :-1].reshape(*batch, -1)
        return weight if self.weights.biases[place] is None else np.concatenate([weight, values[..., :-1, -1]], axis=-1)

    def _product(self, places: range, width: int) -> Array:
        start = np.eye(width, dtype=int) * np.ones_like(self.weights.layers[0][..., :1, :1])
        return reduce(lambda done, place: self._extended_layer(place) @ done, places, start)

    def _extended_layer(self, place: int) -> Array:
        layer, bias = self.weights.layers[place], self.weights.biases[place]
        column = 0 * layer[..., :1] if bias is None else bias[..., None]
        last = np.eye(1, layer.shape[-1] + 1, layer.shape[-1], dtype=int) + 0 * layer[..., :1, :1]
        return np.concatenate([np.concatenate([layer, column], axis=-1), last], axis=-2)


def _transposed(matrix: Array) -> Array:
    return np.swapaxes(matrix, -1, -2)
