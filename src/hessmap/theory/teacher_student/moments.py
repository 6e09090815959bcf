"""Gaussian moments of activations that population Hessians need: products of two units and up to two inputs.

Units are z = w.x + b with x ~ N(0, I). With u = g^(i) of a left unit z_k and v = g^(j) of a right unit z_m,

    E[u v]       = constant
    E[u v x]     = left w_k + right w_m
    E[u v x x^T] = identity I + left_left w_k w_k^T + left_right (w_k w_m^T + w_m w_k^T) + right_right w_m w_m^T

and integration by parts (Stein's lemma) reads every coefficient off E[g^(i)(z_k) g^(j)(z_m)] of higher orders. Nothing
is divided by, so that equal, parallel and zero rows need no care.

The probability that two normal variables are both positive is computed by Owen's T function.

Moments of polynomial activations are finite sums, exact in rational arithmetic.

Moments of g(t) = erf(t / sqrt 2) = 2 Phi(t) - 1 have a closed form with any biases.

g(t) = E sign(t + xi) with xi ~ N(0, 1), so that E[g^(i)(u) g^(j)(v)] is E[sign^(i) sign^(j)] of two normal variables
with variances greater by one. By sign' = 2 delta and v delta^(j)(v) = -j delta^(j-1)(v) all orders follow from three.
Without bias these are equations 16 to 18 of "A Teacher-Student Perspective on the Dynamics of Learning Near the Optimal
Point", whose printed right-hand sides are right (equation 16 lacks a square on its left, and the intermediate steps of
its Appendix C have a sign and a factor 2 / sqrt(pi) wrong).

Moments of ramps max(z, 0) are arc-cosine kernels, in closed form with any biases. The second derivative of a ramp
is a Dirac delta: the population loss has a Hessian although the loss of one sample has none where a unit is zero. A
moment with the delta of a unit is the conditional moment on the plane where it is zero. Relu and leaky relu are ramps
of the units and of their mirror images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from math import pi
from typing import Any, NamedTuple

import numpy as np

from hessmap.errors import require
from hessmap.theory.teacher_student.weights import Array

_PARALLEL = 1e-8  # rows whose angle has a smaller sine count as parallel; the error is of this size on either side


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


def orthant_probability(left: Array, right: Array, correlation: Array, sine: Array) -> Array:
    """P(u > 0, v > 0) for unit variances, means ``left`` and ``right``; ``sine`` is sqrt(1 - correlation^2).

    Owen 1956: Phi_2(h, k; r) = (Phi(h) + Phi(k)) / 2 - T(h, (k - r h) / (h sine)) - T(k, (h - r k) / (k sine)) - d with
    d = 1/2 where h and k differ in sign. Where both are zero it is 1/4 + asin(r) / (2 pi). Given apart from the
    correlation, the sine is right also for nearly parallel units.

    >>> round(float(orthant_probability(np.array(0.0), np.array(0.0), np.array(0.5), np.array(0.75**0.5))), 12)
    0.333333333333
    """
    from scipy.special import ndtr

    left, right, correlation, sine = np.broadcast_arrays(left, right, correlation, sine)
    opposite = (left * right < 0) | ((left * right == 0) & (left + right < 0))
    general = (ndtr(left) + ndtr(right)) / 2 - _owen(left, right, correlation, sine)
    general = general - _owen(right, left, correlation, sine) - 0.5 * opposite
    at_zero = 0.25 + np.arctan2(correlation, sine) / (2 * pi)
    return np.where((left == 0) & (right == 0), at_zero, general)


def _owen(height: Array, other: Array, correlation: Array, sine: Array) -> Array:
    """T(h, a) with a = (k - r h) / (h sine): zero where the numerator is, infinite where only the denominator is."""
    from scipy.special import owens_t

    above, below = other - correlation * height, height * sine
    above = np.where(np.abs(above) <= 4 * np.finfo(float).eps * (np.abs(other) + np.abs(height)), 0.0, above)
    # At h = 0 the sign of a is that of k, as for small positive h.
    infinite = np.where((height < 0) == (above < 0), np.inf, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(above == 0, 0.0, np.where(below == 0, infinite, above / below))
    return np.asarray(owens_t(height, slope))


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


def ramp_single(order: int, units: Units) -> Array:
    """E[ramp^(order)(z)]: mean and probability of the positive part, density at zero, its derivatives in the mean."""
    from scipy.special import ndtr

    _require_rows(units)
    variance, mean = units.variances, units.means
    density, positive = _density(mean, variance), ndtr(mean / np.sqrt(variance))
    values = (
        lambda: mean * positive + variance * density,
        lambda: positive,
        lambda: density,
        lambda: -mean / variance * density,
        lambda: ((mean / variance) ** 2 - 1 / variance) * density,
    )
    return np.asarray(values[order]())


class RampPairs(PairMoments):
    """Letters: s, t the variances, c the covariance, m, n the means of the left unit u and the right unit v."""

    def __init__(self, left: Units, right: Units) -> None:
        _require_rows(left)
        _require_rows(right)
        cosine, sine = _angles(left.rows, right.rows)
        law = PairGeometry.of(left, right)
        left_law, right_law = (law.left_variance, law.left_mean), (law.right_variance, law.right_mean)
        self._s, self._t = law.left_variance, law.right_variance
        self._m, self._n = law.left_mean, law.right_mean
        self._c = np.sqrt(self._s * self._t) * cosine
        self._both = orthant_probability(self._m / np.sqrt(self._s), self._n / np.sqrt(self._t), cosine, sine)
        self._right_zero = _OnPlane.of(*left_law, *right_law, cosine, sine)
        self._left_zero = _OnPlane.of(*right_law, *left_law, cosine, sine)

    def constant(self, i: int, j: int) -> Array:
        """Orders up to (0, 0), (0, 1), (1, 1), (0, 2), (1, 2) and the same exchanged."""
        left, right = self._left_zero, self._right_zero
        step_ramp = self._n * self._both + self._t * right.step + self._c * left.step
        values = {
            (0, 0): self._m * step_ramp + self._s * left.ramp + self._c * self._both,
            (0, 1): self._m * self._both + self._s * left.step + self._c * right.step,
            (1, 0): step_ramp,
            (1, 1): self._both,
            (0, 2): right.ramp,
            (2, 0): left.ramp,
            (1, 2): right.step,
            (2, 1): left.step,
        }
        return np.asarray(values[i, j])

    def first(self, i: int, j: int) -> tuple[Array, Array]:
        """Orders (0, 1), (1, 1) and (0, 2)."""
        if (i, j) != (0, 2):
            return super().first(i, j)
        plane = self._right_zero
        return plane.step, -(self._c * plane.step + self._n * plane.ramp) / self._t

    def second(self, i: int, j: int) -> Second:
        """Orders (1, 1) and (0, 2), the only ones in a Hessian."""
        left, right = self._left_zero, self._right_zero
        by_right = -(self._n * right.step + self._c * right.delta) / self._t
        if (i, j) == (1, 1):
            by_left = -(self._m * left.step + self._c * left.delta) / self._s
            return Second(self._both, by_left, right.delta, by_right)
        lean, pull = self._n / self._t, self._c / self._t
        squared = (lean**2 - 1 / self._t) * right.ramp + pull**2 * right.delta + 2 * lean * pull * right.step
        return Second(right.ramp, right.delta, by_right, squared)


class _OnPlane(NamedTuple):
    """E[delta(v) h(u)] for h a ramp, a step and a delta: u given v = 0 is normal, times the density of v at zero."""

    ramp: Array
    step: Array
    delta: Array

    @classmethod
    def of(cls, variance: Array, mean: Array, other: Array, other_mean: Array, cosine: Array, sine: Array) -> _OnPlane:
        from scipy.special import ndtr

        shift = np.sqrt(variance / other) * cosine * other_mean
        centre, spread = mean - shift, np.sqrt(variance) * sine
        centre = np.where(np.abs(centre) <= 8 * np.finfo(float).eps * np.abs(mean), 0.0, centre)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(centre == 0, 0.0, centre / spread)
            bump = np.where(spread == 0, 0.0, np.exp(-(ratio**2) / 2) / np.sqrt(2 * pi) / spread)
        density, positive = _density(other_mean, other), ndtr(ratio)
        return cls(density * (centre * positive + spread**2 * bump), density * positive, density * bump)


def _density(mean: Array, variance: Array) -> Array:
    """The density at zero of a normal variable."""
    return np.asarray(np.exp(-(mean**2) / (2 * variance)) / np.sqrt(2 * pi * variance))


def _angles(left: Array, right: Array) -> tuple[Array, Array]:
    """Cosine and sine of the angle of every pair of rows, the sine right also where it is small."""
    first = left / np.linalg.norm(left, axis=-1, keepdims=True)
    second = right / np.linalg.norm(right, axis=-1, keepdims=True)
    apart = np.linalg.norm(first[..., :, None, :] - second[..., None, :, :], axis=-1)
    together = np.linalg.norm(first[..., :, None, :] + second[..., None, :, :], axis=-1)
    sine = apart * together / 2
    cosine = (together**2 - apart**2) / 4
    is_parallel = sine < _PARALLEL
    return np.where(is_parallel, np.sign(cosine), cosine), np.where(is_parallel, 0.0, sine)


def _require_rows(units: Units) -> None:
    zeros = np.argwhere(units.variances == 0)
    must = "with a rectifier every hidden unit must have a weight, or the population loss has no Hessian"
    require(not len(zeros), must, f"the row of hidden unit {zeros[0][-1] if len(zeros) else ''} is zero")


@dataclass(frozen=True)
class Rectifier(GaussianMoments):
    """g(t) = max(t, 0) + slope min(t, 0) = ramp(t) - slope ramp(-t)."""

    slope: float

    def pairs(self, left: Units, right: Units) -> PairMoments:
        signs = [(1, 1.0), (-1, -self.slope)] if self.slope else [(1, 1.0)]
        return RectifierPairs(
            tuple(
                _Term(k, m, above * below, RampPairs(_mirrored_units(left, k), _mirrored_units(right, m)))
                for k, above in signs
                for m, below in signs
            )
        )

    def single(self, order: int, units: Units) -> Array:
        value = ramp_single(order, units)
        return (
            value - self.slope * (-1) ** order * ramp_single(order, _mirrored_units(units, -1)) if self.slope else value
        )


def _mirrored_units(units: Units, sign: int) -> Units:
    return units if sign > 0 else Units(-units.rows, None if units.offsets is None else -units.offsets)


@dataclass(frozen=True)
class _Term:
    """``weight`` times the ramps of ``left_sign`` z_k and ``right_sign`` z_m."""

    left_sign: int
    right_sign: int
    weight: float
    ramps: RampPairs

    def factor(self, i: int, j: int) -> float:
        """What a derivative of these orders in the units themselves multiplies by."""
        return float(self.weight * self.left_sign**i * self.right_sign**j)


@dataclass(frozen=True)
class RectifierPairs(PairMoments):
    """A sum of moments of ramps, their coefficients turned from those of mirrored rows into those of the rows."""

    terms: tuple[_Term, ...]

    def constant(self, i: int, j: int) -> Array:
        return np.asarray(sum(term.factor(i, j) * term.ramps.constant(i, j) for term in self.terms))

    def first(self, i: int, j: int) -> tuple[Array, Array]:
        found = [(term, term.factor(i, j), *term.ramps.first(i, j)) for term in self.terms]
        left = sum(factor * term.left_sign * left for term, factor, left, _ in found)
        right = sum(factor * term.right_sign * right for term, factor, _, right in found)
        return np.asarray(left), np.asarray(right)

    def second(self, i: int, j: int) -> Second:
        parts = []
        for term in self.terms:
            factor, found = term.factor(i, j), term.ramps.second(i, j)
            crossed = term.left_sign * term.right_sign * found.left_right
            parts.append([factor * part for part in (found.identity, found.left_left, crossed, found.right_right)])
        return Second(*(np.asarray(sum(column)) for column in zip(*parts, strict=True)))
