"""What the population Hessian needs of an activation: expectations of products of two units and up to two inputs.

Units are z = w.x + b with x ~ N(0, I). With u = g^(i) of a left unit z_k and v = g^(j) of a right unit z_m,

    E[u v]       = constant
    E[u v x]     = left w_k + right w_m
    E[u v x x^T] = identity I + left_left w_k w_k^T + left_right (w_k w_m^T + w_m w_k^T) + right_right w_m w_m^T

and integration by parts (Stein's lemma) reads every coefficient off E[g^(i)(z_k) g^(j)(z_m)] of higher orders. Nothing
is divided by, so that equal, parallel and zero rows need no care.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hessmap.theory.teacher_student.weights import Array


class Units(NamedTuple):
    """Rows w (..., units, inputs) and biases b (..., units); None where there is no bias."""

    rows: Array
    offsets: Array | None

    @property
    def means(self) -> Array:
        """The means of the units: their biases, or zeros."""
        return np.zeros(self.rows.shape[:-1], dtype=self.rows.dtype) if self.offsets is None else self.offsets

    @property
    def variances(self) -> Array:
        return np.asarray(np.einsum("...kn,...kn->...k", self.rows, self.rows))


class Second(NamedTuple):
    identity: Array
    left_left: Array
    left_right: Array
    right_right: Array


class PairMoments(ABC):
    """The expectations for all pairs (left, right), as arrays (..., left, right)."""

    @abstractmethod
    def constant(self, i: int, j: int) -> Array:
        """E[g^(i)(z_k) g^(j)(z_m)]."""

    def first(self, i: int, j: int) -> tuple[Array, Array]:
        """The coefficients (left, right) of E[g^(i)(z_k) g^(j)(z_m) x]."""
        return self.constant(i + 1, j), self.constant(i, j + 1)

    def second(self, i: int, j: int) -> Second:
        """The coefficients of E[g^(i)(z_k) g^(j)(z_m) x x^T]."""
        higher = self.constant(i + 2, j), self.constant(i + 1, j + 1), self.constant(i, j + 2)
        return Second(self.constant(i, j), *higher)


class GaussianMoments(ABC):
    """An activation as its Gaussian moments."""

    @abstractmethod
    def pairs(self, left: Units, right: Units) -> PairMoments:
        """The moments of all pairs of a left and a right unit."""

    @abstractmethod
    def single(self, order: int, units: Units) -> Array:
        """E[g^(order)(z)] of every unit, for orders 0 to 4."""


@dataclass(frozen=True)
class PairGeometry:
    """The joint law of two units: variances, covariance and means, each broadcast to (..., left, right)."""

    left_variance: Array
    right_variance: Array
    covariance: Array
    left_mean: Array
    right_mean: Array

    @classmethod
    def of(cls, left: Units, right: Units) -> PairGeometry:
        return cls(
            left.variances[..., :, None],
            right.variances[..., None, :],
            np.einsum("...kn,...mn->...km", left.rows, right.rows),
            left.means[..., :, None],
            right.means[..., None, :],
        )
