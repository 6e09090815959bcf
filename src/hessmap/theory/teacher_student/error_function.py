"""Gaussian moments of g(t) = erf(t / sqrt 2) = 2 Phi(t) - 1, in closed form with any biases.

g(t) = E sign(t + xi) with xi ~ N(0, 1), so that E[g^(i)(u) g^(j)(v)] is E[sign^(i) sign^(j)] of two normal variables
with variances greater by one. By sign' = 2 delta and v delta^(j)(v) = -j delta^(j-1)(v) all orders follow from three.
Without bias these are equations 16 to 18 of "A Teacher-Student Perspective on the Dynamics of Learning Near the Optimal
Point", whose printed right-hand sides are right (equation 16 lacks a square on its left, and the intermediate steps of
its Appendix C have a sign and a factor 2 / sqrt(pi) wrong).
"""

from __future__ import annotations

from math import pi

import numpy as np

from hessmap.theory.teacher_student.gaussian_moments import GaussianMoments, PairGeometry, PairMoments, Units
from hessmap.theory.teacher_student.orthant import orthant_probability
from hessmap.theory.teacher_student.weights import Array


class ErrorFunction(GaussianMoments):
    """The error function as its Gaussian moments."""

    def pairs(self, left: Units, right: Units) -> PairMoments:
        return ErrorFunctionPairs(PairGeometry.of(left, right), left.offsets is not None or right.offsets is not None)

    def single(self, order: int, units: Units) -> Array:
        """E sign^(order)(z + xi): erf, and derivatives of the normal density at zero."""
        from scipy.special import erf

        variance, mean = 1 + units.variances, units.means
        density = np.exp(-(mean**2) / (2 * variance)) / np.sqrt(2 * pi * variance)
        values = [erf(mean / np.sqrt(2 * variance)), 2 * density]
        for j in range(1, order):
            values.append(-(mean * values[j] + (j - 1) * values[j - 1] * (j > 1)) / variance)
        return np.asarray(values[order])


class ErrorFunctionPairs(PairMoments):
    """Pairs under the error function; letters: s, t the variances plus one, c the covariance, m, n the means."""

    def __init__(self, law: PairGeometry, has_means: bool) -> None:
        self._s, self._t, self._c = 1 + law.left_variance, 1 + law.right_variance, law.covariance
        self._m, self._n = law.left_mean, law.right_mean
        self._has_means = has_means
        self._determinant = self._s * self._t - self._c**2

    def constant(self, i: int, j: int) -> Array:
        if i == j == 0:
            return self._signs()
        if i == 0:
            return self._one_sign(j)
        return self._swapped_pairs.constant(j, i) if j == 0 else self._densities(i, j)

    @property
    def _swapped_pairs(self) -> ErrorFunctionPairs:
        """Left and right exchanged; the arrays keep their axes."""
        return ErrorFunctionPairs(PairGeometry(self._t - 1, self._s - 1, self._c, self._n, self._m), self._has_means)

    def _signs(self) -> Array:
        """E[sign u sign v] = (2 / pi) asin(c / sqrt(s t)) without means."""
        if not self._has_means:
            return np.asarray(2 / pi * np.arcsin(self._c / np.sqrt(self._s * self._t)))
        from scipy.special import ndtr

        high, wide = self._m / np.sqrt(self._s), self._n / np.sqrt(self._t)
        scale = np.sqrt(self._s * self._t)
        both = orthant_probability(high, wide, self._c / scale, np.sqrt(self._determinant) / scale)
        return np.asarray(4 * both - 2 * ndtr(high) - 2 * ndtr(wide) + 1)

    def _one_sign(self, j: int) -> Array:
        """E[sign(u) sign^(j)(v)] for j from 1, by v sign^(j)(v) = -(j - 1) sign^(j-1)(v) and by parts in v."""
        from scipy.special import erf

        centre = self._m - self._c * self._n / self._t
        density = np.exp(-(self._n**2) / (2 * self._t)) / np.sqrt(2 * pi * self._t)
        values = [2 * density * erf(centre * np.sqrt(self._t / (2 * self._determinant)))]
        for order in range(1, j):
            lower = (order - 1) * values[order - 2] if order > 1 else 0.0
            crossed = self._c * self._densities(1, order)
            values.append(-(lower + self._n * values[order - 1] + crossed) / self._t)
        return np.asarray(values[j - 1])

    def _densities(self, i: int, j: int) -> Array:
        """E[sign^(i)(u) sign^(j)(v)] = 4 times derivatives of the joint density at zero, i, j >= 1 and i + j <= 4."""
        s, t, c, determinant = self._s, self._t, self._c, self._determinant
        a, b = (t * self._m - c * self._n) / determinant, (s * self._n - c * self._m) / determinant
        density = 2 / (pi * np.sqrt(determinant)) * np.exp(-(self._m * a + self._n * b) / 2)
        factors = {
            (1, 1): 1.0,
            (2, 1): -a,
            (1, 2): -b,
            (2, 2): a * b + c / determinant,
            (3, 1): a**2 - t / determinant,
            (1, 3): b**2 - s / determinant,
        }
        return np.asarray(factors[i, j] * density)
