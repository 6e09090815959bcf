"""Gaussian moments of polynomial activations: finite sums, exact in rational arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hessmap.theory.teacher_student.gaussian_moments import GaussianMoments, PairGeometry, PairMoments, Units
from hessmap.theory.teacher_student.weights import Array


@dataclass(frozen=True)
class PolynomialMoments(GaussianMoments):
    """g(t) = sum_p coefficients[p] t^p, of any degree."""

    coefficients: tuple[Any, ...]

    def pairs(self, left: Units, right: Units) -> PairMoments:
        return PolynomialPairs(self, PairGeometry.of(left, right))

    def single(self, order: int, units: Units) -> Array:
        powers = [np.ones_like(units.means), units.means]
        for p in range(1, len(self.coefficients)):
            powers.append(units.means * powers[p] + p * units.variances * powers[p - 1])
        coefficients = self.derivative(order, powers[0].dtype)
        return np.asarray(sum((c * powers[p] for p, c in enumerate(coefficients)), start=0 * powers[0]))

    def derivative(self, order: int, dtype: Any) -> list[Any]:
        """The coefficients of the derivative of this order, as fractions where the arrays hold fractions.

        >>> PolynomialMoments((0, 1, 5)).derivative(1, float)
        [1.0, 10.0]
        """
        is_exact = np.dtype(dtype) == np.dtype(object)
        values: list[Any] = [Fraction(c) if is_exact else float(c) for c in self.coefficients]
        for _ in range(order):
            values = [p * c for p, c in enumerate(values)][1:]
        return values


class PolynomialPairs(PairMoments):
    """E[u^p v^q] by E[u^p v^q] = mean E[u^(p-1) v^q] + (p-1) var(u) E[u^(p-2) v^q] + q cov(u, v) E[u^(p-1) v^(q-1)]."""

    def __init__(self, moments: PolynomialMoments, geometry: PairGeometry) -> None:
        self._moments = moments
        self._geometry = geometry
        self._one = np.ones_like(geometry.covariance)
        self._powers: dict[tuple[int, int], Array] = {}

    def constant(self, i: int, j: int) -> Array:
        left = self._moments.derivative(i, self._one.dtype)
        right = self._moments.derivative(j, self._one.dtype)
        total = 0 * self._one
        for p, c in enumerate(left):
            for q, d in enumerate(right):
                if c != 0 and d != 0:
                    total = total + c * d * self._power(p, q)
        return total

    def _power(self, p: int, q: int) -> Array:
        """E[u^p v^q]; the left power is lowered, or the right one where the left is zero."""
        if p < 0 or q < 0:
            return 0 * self._one
        if p == q == 0:
            return self._one
        if (p, q) not in self._powers:
            law = self._geometry
            if p:
                lowered = law.left_mean * self._power(p - 1, q) + q * law.covariance * self._power(p - 1, q - 1)
                value = lowered + (p - 1) * law.left_variance * self._power(p - 2, q)
            else:
                value = law.right_mean * self._power(0, q - 1) + (q - 1) * law.right_variance * self._power(0, q - 2)
            self._powers[p, q] = value
        return self._powers[p, q]
