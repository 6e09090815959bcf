"""Gaussian moments of ramps max(z, 0): arc-cosine kernels, in closed form with any biases.

The second derivative of a ramp is a Dirac delta: the population loss has a Hessian although the loss of one sample has
none where a unit is zero. A moment with the delta of a unit is the conditional moment on the plane where it is zero.

Gaussian moments of relu and leaky relu in closed form: ramps of the units and of their mirror images.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import NamedTuple

import numpy as np

from hessmap.errors import require
from hessmap.theory.teacher_student.moments import (
    GaussianMoments,
    PairGeometry,
    PairMoments,
    Second,
    Units,
    orthant_probability,
)
from hessmap.theory.teacher_student.weights import Array

_PARALLEL = 1e-8  # rows whose angle has a smaller sine count as parallel; the error is of this size on either side


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
